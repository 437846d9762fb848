#include "ops/cpu/low_rank.h"

#include <algorithm>

namespace quire {

void add_low_rank(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts, const Rows& x,
                  const NormView& norm, const Rows& inner, std::span<const LowRankProduct> products) {
  if (products.empty()) return;
  int begin = products[0].row, end = 0;
  for (const LowRankProduct& p : products) {
    begin = std::min(begin, p.row);
    end = std::max(end, p.row + p.rows);
  }
  // Inputs in float32 have no layout that joins rows, so a part may begin at any row.
  const Inputs in =
      inputs.prepare(compute, x.from(begin), norm, end - begin, {&products[0].change->down}, Activations::kF32);
  parts.parts.clear();
  int first = 0;  // of the product's rows of `inner`
  for (const LowRankProduct& p : products) {
    const Linear& down = p.change->down;
    const Rows low = inner.from(first).columns(0, down.weight.rows);
    parts.parts.push_back({in.from_row(p.row - begin), {.w = &down, .y = low, .as = Activations::kF32}, 0, p.rows});
    first += p.rows;
  }
  project_parts(compute, parts);

  parts.parts.clear();
  first = 0;
  size_t taken = 0;
  for (const LowRankProduct& p : products) {
    const LowRank& change = *p.change;
    const Inputs low = inputs.prepare_low_rank(compute, inner.from(first), p.rows, change, taken);
    const int outputs = change.up.weight.rows;
    const Projection up{.w = &change.up,
                        .y = p.y.from(p.row).columns(0, outputs),
                        .scale = p.scale * change.scale,
                        .accumulate = true,
                        .as = Activations::kF32};
    if (p.rows == 1) {  // the folds are rows of one product, so that the matrix is read once
      parts.parts.push_back({low, up, 0, change.folds});
      parts.parts.back().projection.y.stride = static_cast<size_t>(outputs);
    } else {
      for (int fold = 0; fold < change.folds; ++fold) {
        parts.parts.push_back({low.from_row(fold * p.rows), up, 0, p.rows});
        parts.parts.back().projection.y = p.y.from(p.row).columns(fold * outputs, outputs);
      }
    }
    first += p.rows;
  }
  project_parts(compute, parts);
}

}  // namespace quire
