// The feed-forward layer: gated (GLU variants: arXiv 2002.05202) or plain.

#include "model/blocks/blocks.h"

namespace quire {

void mlp_block(const Step& step, const Mlp& m, const MlpWeights& w, const Rows& x, const NormView& norm,
               const Target& target) {
  const Compute& compute = step.compute;
  const Rows inner = step.work.inner.columns(0, m.size);
  const Linear& first = m.gated ? w.gate : w.up;
  const Inputs in = step.work.inputs.prepare(compute, x, norm, step.rows, {&first.weight, &w.up.weight});
  step.done(StepOp::kNormQuantize);
  LinearArgs gate = linear_args(compute, in, first, inner);
  gate.nonlinearity = m.nonlinearity;
  if (m.gated) {
    gate.up = &w.up.weight;
    gate.up_bias = w.up.bias_or_null();
  }
  linears(compute, {&gate, 1}, step.rows);
  step.done(StepOp::kGateUp);

  output_projection(step, inner, view(m.inner, w.inner), w.down, target, StepOp::kDown);
}

}  // namespace quire
