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

bool takes(Pooling pooling, bool is_first, bool is_last) {
  return pooling == Pooling::kMean || (pooling == Pooling::kFirst ? is_first : is_last);
}

}  // namespace

PoolStage::PoolStage(const LoadedModel& model)
    : model_(model), hidden_(static_cast<size_t>(model.target.config.hidden)) {}

void PoolStage::add(RequestState& r, const Chunk& chunk, int row) {
  if (chunk.first == 0 || r.hidden.empty()) r.hidden.assign(hidden_.size(), 0.0f);
  for (int i = 0; i < chunk.rows; ++i) {
    const bool is_last = chunk.wants_logits && i + 1 == chunk.rows;
    if (!takes(r.pooling, chunk.first + i == 0, is_last)) continue;
    model_.decoder->final_hidden(row + i, hidden_);
    for (size_t j = 0; j < hidden_.size(); ++j) r.hidden[j] += hidden_[j];
  }
}

void PoolStage::finish(RequestState& r) const {
  if (!model_.target.config.pooled.layers.empty()) {
    if (r.pooling == Pooling::kMean) {
      for (float& x : r.hidden) x /= static_cast<float>(r.prompt_tokens);
    }
    std::vector<float> result(static_cast<size_t>(model_.info.embedding_size));
    model_.decoder->pool(r.hidden, result);
    r.hidden = std::move(result);
  }
  if (model_.info.labels == 0) scale_to_length_one(r.hidden);
}

}  // namespace quire
