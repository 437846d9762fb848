// LFM2's convolution over the last few tokens, between two gates (Liquid AI 2025, arXiv 2511.23404).

#include "model/blocks/blocks.h"

namespace quire {
namespace {

void convolve_rows(const Step& step, int layer, const ShortConv& m, const ShortConvWeights& w, const Rows& x) {
  step.ops.convolve({step.cache, step.first_layer + layer, m.state()},
                    {.x = x, .weight = w.weight.data(), .bias = m.bias ? w.bias.data() : nullptr}, step.states);
}

}  // namespace

void advance_states(const Step& step, int layer, const ShortConv& m, const ShortConvWeights& w) {
  convolve_rows(step, layer, m, w, step.work.updates[static_cast<size_t>(layer)]);
}

void short_conv_block(const Step& step, int layer, const ShortConv& m, const ShortConvWeights& w, const NormView& norm,
                      const Target& target) {
  Operations& ops = step.ops;
  const Rows all = step.work.projections.columns(0, 3 * m.channels);
  const Rows b = all.columns(0, m.channels), c = all.columns(m.channels, m.channels),
             x = all.columns(2 * m.channels, m.channels);
  project(step, step.work.x, norm, w.in, {all}, StepOp::kQkv);

  ops.multiply_gate(x, b, Nonlinearity::kNone, step.rows);
  keep_updates(step, layer, {x});
  convolve_rows(step, layer, m, w, x);
  ops.multiply_gate(x, c, Nonlinearity::kNone, step.rows);
  step.done(StepOp::kRecurrent);
  project(step, x, {}, w.out, target, StepOp::kO);
}

}  // namespace quire
