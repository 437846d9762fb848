#include "speculate/network/draft_picker.h"

#include <cassert>

#include "ops/top.h"

namespace quire {

TokenId best_token(std::span<const float> logits, std::span<const TokenId> ids) {
  Ranked best{};
  top(logits, {&best, 1});
  return ids.empty() ? best.column : ids[static_cast<size_t>(best.column)];
}

void BestTokenPicker::pick(std::span<float> logits, std::span<const DraftRow> rows, std::span<const TokenId> ids,
                           std::span<TokenId> out) {
  const size_t cols = logits.size() / rows.size();
  assert(logits.size() == cols * rows.size() && out.size() == rows.size() && (ids.empty() || ids.size() == cols));
  team_.for_tiles(static_cast<int>(rows.size()), [&](int tile, int) {
    const auto i = static_cast<size_t>(tile);
    if (rows[i].wanted) out[i] = best_token(logits.subspan(i * cols, cols), ids);
  });
}

}  // namespace quire
