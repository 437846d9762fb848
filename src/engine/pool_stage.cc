#include "engine/pool_stage.h"

#include <cmath>
#include <utility>

namespace quire {
namespace {

void scale_to_length_one(std::vector<float>& vector) {
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
  const auto scale = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
  for (float& x : vector) x *= scale;
}

}  // namespace

std::optional<PooledRows> rows_to_pool(RequestState& r, const Chunk& chunk, int row, int hidden) {
  if (r.array == PromptArray::kHiddenStates) {
    if (chunk.first == 0) r.hidden.clear();
    return PooledRows{.row = row, .rows = chunk.rows, .sum = {}, .last = chunk.wants_logits, .apart = true};
  }
  if (chunk.first == 0 || r.hidden.empty()) r.hidden.assign(static_cast<size_t>(hidden), 0.0f);
  PooledRows pooled{.row = row, .rows = 0, .sum = {}, .last = chunk.wants_logits};
  if (r.pooling == Pooling::kMean) {
    pooled.rows = chunk.rows;
    pooled.divisor = static_cast<float>(r.prompt_tokens);
  } else if (r.pooling == Pooling::kFirst) {
    pooled.rows = chunk.first == 0 ? 1 : 0;
  } else if (chunk.wants_logits) {
    pooled.row = row + chunk.rows - 1;
    pooled.rows = 1;
  }
  if (pooled.rows == 0 && !pooled.last) return std::nullopt;
  pooled.sum = std::exchange(r.hidden, {});
  return pooled;
}

void take_pooled(RequestState& r, const PooledRows& order, const std::vector<float>& pooled, int labels) {
  if (order.apart) {
    r.hidden.insert(r.hidden.end(), pooled.begin(), pooled.end());
    return;
  }
  r.hidden = pooled;
  if (order.last && labels == 0) scale_to_length_one(r.hidden);
}

bool keeps_logits(const Request& r) { return r.array == PromptArray::kLogits || r.array == PromptArray::kTokenLogits; }

void take_logits(RequestState& r, std::span<const float> logits) {
  r.hidden.insert(r.hidden.end(), logits.begin(), logits.end());
}

void reserve_pooled(RequestState& r, int hidden, int vocab) {
  const auto tokens = static_cast<size_t>(r.prompt_tokens);
  if (r.array == PromptArray::kHiddenStates) r.hidden.reserve(tokens * static_cast<size_t>(hidden));
  if (r.array == PromptArray::kLogits) r.hidden.reserve(static_cast<size_t>(vocab));
  if (r.array == PromptArray::kTokenLogits) r.hidden.reserve(tokens * static_cast<size_t>(vocab));
}

}  // namespace quire
