#include "speculate/best_tokens.h"

#include <array>
#include <cassert>

#include "ops/top.h"

namespace quire {

void best_tokens(const Compute& compute, std::span<float> logits, int rows, int count, std::span<const TokenId> ids,
                 std::span<DraftedToken> out) {
  const size_t cols = logits.size() / static_cast<size_t>(rows), size = static_cast<size_t>(count);
  assert(logits.size() == cols * static_cast<size_t>(rows) && (ids.empty() || ids.size() == cols));
  assert(count <= kMostBranches && out.size() == size * static_cast<size_t>(rows));
  compute.team.for_tiles(rows, [&](int i, int) {
    const auto row = static_cast<size_t>(i);
    const std::span<float> x = logits.subspan(row * cols, cols);
    std::array<Ranked, kMostBranches> memory;
    const std::span<Ranked> best = std::span(memory).first(size);
    top(x, best);  // of the logits: probabilities can be equal where they are not
    compute.kernels.softmax(x.data(), static_cast<int>(cols));
    for (size_t j = 0; j < size; ++j) {
      const auto column = static_cast<size_t>(best[j].column);
      out[row * size + j] = {ids.empty() ? best[j].column : ids[column], x[column]};
    }
  });
}

}  // namespace quire
