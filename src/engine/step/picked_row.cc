#include "engine/step/picked_row.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "sampling/philox.h"

namespace quire {

Pick pick_for(const SamplingParams& params, const SampleRow& row, const Candidates& candidates,
              std::span<uint32_t> room) {
  const std::span<const uint32_t> mask = row.mask;
  Pick pick{.best = candidates.best, .mask = mask, .columns = candidates.tokens};
  if (candidates.draws) {
    pick.draw = {.temperature = params.temperature,
                 .uniform = uniform_at(params.seed, row.choice, row.position),
                 .best_only = params.top_k > 0 && std::cmp_less(params.top_k, row.vocab),
                 .top_p = params.top_p,
                 .min_p = params.min_p};
  }
  if (candidates.tokens.empty() || candidates.best == 0) return pick;
  if (mask.empty()) {
    std::ranges::fill(room, ~0u);
  } else {
    std::ranges::copy(mask, room.begin());
  }
  for (const TokenId token : candidates.tokens) room[static_cast<size_t>(token) / 32] &= ~(1u << (token % 32));
  pick.mask = room;
  return pick;
}

void PickedRow::set(const Picked& picked, SampleRow& row) {
  picked_.clear();
  for (size_t i = 0; i < picked.best.size() && picked.best[i] >= 0; ++i)
    picked_.emplace_back(picked.best[i], picked.best_values[i]);
  for (size_t i = 0; i < picked.columns.size(); ++i) picked_.emplace_back(picked.columns[i], picked.column_values[i]);
  std::ranges::sort(picked_, {}, &std::pair<TokenId, float>::first);
  ids_.clear();
  logits_.clear();
  for (const auto& [token, logit] : picked_) {
    ids_.push_back(token);
    logits_.push_back(logit);
  }
  row.ids = ids_;
  row.logits = logits_;
  row.drawn = picked.drawn >= 0 ? picked.drawn : kNoToken;
}

}  // namespace quire
