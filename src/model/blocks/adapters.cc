// Low-rank adapters (LoRA: arXiv 2106.09685): rows of a step that some adapter changes, each by its own.

#include <cassert>

#include "model/blocks/blocks.h"

namespace quire {

void adapt(const Step& step, const Rows& x, const NormView& norm, std::initializer_list<AdaptedLinear> linears) {
  if (step.adapted.empty()) return;
  assert(linears.size() <= kMostChanged);
  step.products.clear();
  for (const AdaptedLinear& linear : linears) {
    for (const AdaptedRows& rows : step.adapted) {
      if (const LowRank* change = rows.adapter->find(*linear.w))
        step.products.push_back({change, rows.row, rows.rows, linear.target.to, linear.target.scale});
    }
  }
  if (!step.products.empty()) step.ops.add_low_rank(x, norm, step.work.low_rank, step.products);
}

bool adapts(const Step& step, const Linear& w) {
  for (const AdaptedRows& rows : step.adapted)
    if (rows.adapter->find(w)) return true;
  return false;
}

}  // namespace quire
