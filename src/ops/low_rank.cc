#include "ops/low_rank.h"

#include <cassert>

#include "ops/backend.h"

namespace quire {

int low_rank_folds(int outputs, int rank) {
  int folds = 4;
  while (folds > 1 && (rank > kBlockInputs / folds || outputs % (folds * kPanel) != 0)) folds /= 2;
  return folds;
}

void Operations::add_low_rank(const Rows& x, const NormView& norm, const Rows& inner,
                              std::span<const LowRankProduct> products) {
  for (const LowRankProduct& p : products) {
    const LowRank& change = *p.change;
    assert(change.folds == 1 && "Backend::folds_low_rank()");
    const Rows low = inner.columns(0, change.down.weight.rows);
    project(prepare(x.from(p.row), norm, p.rows, {&change.down}, Activations::kF32),
            {.w = &change.down, .y = low, .as = Activations::kF32}, p.rows);
    project(prepare(low, {}, p.rows, {&change.up}, Activations::kF32),
            {.w = &change.up,
             .y = p.y.from(p.row),
             .scale = p.scale * change.scale,
             .accumulate = true,
             .as = Activations::kF32},
            p.rows);
  }
}

}  // namespace quire
