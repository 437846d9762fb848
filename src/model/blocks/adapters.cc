// Low-rank adapters (LoRA: arXiv 2106.09685): rows of a step that some adapter changes, each by its own.

#include <cassert>

#include "model/blocks/blocks.h"

namespace quire {

namespace {

// y += gain * y + offset, before the low-rank change is added. Where y was added to something, it is computed again.
void scale_outputs(const Step& step, const Rows& x, const NormView& norm, const AdaptedLinear& linear,
                   const LowRank& change, const AdaptedRows& rows) {
  const NormView gain{.weight = change.gain.data(), .bias = change.offset.data()};
  const Target& target = linear.target;
  Rows y = target.to.from(rows.row).columns(0, change.outputs());
  const Target to{y, target.scale, true};
  if (target.accumulate || target.scale != 1) {
    assert(change.outputs() <= step.work.undecomposed.cols);
    y = step.work.undecomposed.columns(0, change.outputs());
    const Inputs in = step.ops.prepare(x.from(rows.row), norm, rows.rows, {linear.w});
    step.ops.project(in, {.w = linear.w, .y = y}, rows.rows);
  }
  step.ops.normalize(y, gain, to, rows.rows);
}

}  // namespace

void adapt(const Step& step, const Rows& x, const NormView& norm, std::initializer_list<AdaptedLinear> linears) {
  if (step.adapted.empty()) return;
  assert(linears.size() <= kMostChanged);
  step.products.clear();
  for (const AdaptedLinear& linear : linears) {
    for (const AdaptedRows& rows : step.adapted) {
      const LowRank* const change = rows.adapter->find(*linear.w);
      if (!change) continue;
      if (!change->gain.empty()) scale_outputs(step, x, norm, linear, *change, rows);
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
