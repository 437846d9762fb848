// The feed-forward layer: gated (GLU variants: arXiv 2002.05202) or plain.

#include "model/blocks/blocks.h"

namespace quire {

namespace {

// For gates that cannot be multiplied while they are computed: they change before the nonlinearity, or their matrices want
// different transforms of their inputs.
void separate_gates_mlp(const Step& step, const Mlp& m, const MlpWeights& w, const Rows& x, const NormView& norm,
                        const Target& target) {
  const Compute& compute = step.compute;
  const Rows gate = step.work.inner.columns(0, m.size), up = step.work.up.columns(0, m.size);
  const Inputs in = step.work.inputs.prepare(compute, x, norm, step.rows, {&w.gate, &w.up});
  const Projection both[] = {{.w = &w.gate, .y = gate}, {.w = &w.up, .y = up}};
  project(compute, in, both, step.rows);
  if (m.gate_scale != 1) scale(compute, gate, m.gate_scale, step.rows);
  if (m.sparsity != 0) cut_below(compute, gate, m.sparsity, step.rows);
  multiply_gate(compute, up, gate, m.nonlinearity, step.rows);
  step.done(StepOp::kGateUp);
  project(step, up, {}, w.down, target, StepOp::kDown);
}

}  // namespace

void mlp_block(const Step& step, const Mlp& m, const MlpWeights& w, const Rows& x, const NormView& norm,
               const Target& target) {
  const Compute& compute = step.compute;
  const Rows inner = step.work.inner.columns(0, m.size);
  if (m.changes_gates() || (m.gated && w.gate.transform != w.up.transform))
    return separate_gates_mlp(step, m, w, x, norm, target);
  const Linear& first = m.gated ? w.gate : w.up;
  const Inputs in = step.work.inputs.prepare(compute, x, norm, step.rows, {&first, &w.up});
  step.done(StepOp::kNormQuantize);
  project(compute, in, {.w = &first, .y = inner, .up = m.gated ? &w.up : nullptr, .f = m.nonlinearity}, step.rows);
  step.done(StepOp::kGateUp);

  project(step, inner, view(m.inner, w.inner), w.down, target, StepOp::kDown);
}

}  // namespace quire
