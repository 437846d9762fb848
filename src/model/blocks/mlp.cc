// The feed-forward layer: gated (GLU variants: arXiv 2002.05202) or plain.

#include "model/blocks/blocks.h"

namespace quire {

namespace {

// For gates that cannot be multiplied while they are computed: they change before the nonlinearity, or their matrices want
// different transforms of their inputs. The bits are those of gates that could.
void separate_gates_mlp(const Step& step, const Mlp& m, const MlpWeights& w, const Rows& x, const NormView& norm,
                        const Target& target) {
  Operations& ops = step.ops;
  const Rows gate = step.work.inner.columns(0, m.size), up = step.work.up.columns(0, m.size);
  const Inputs in = ops.prepare(x, norm, step.rows, {&w.gate, &w.up});
  const Projection both[] = {{.w = &w.gate, .y = gate}, {.w = &w.up, .y = up}};
  ops.project(in, both, step.rows);
  adapt(step, x, norm, {{&w.gate, {gate}}, {&w.up, {up}}});
  if (m.gate_scale != 1) ops.scale(gate, m.gate_scale, step.rows);
  if (m.sparsity != 0) ops.cut_below(gate, m.sparsity, step.rows);
  ops.multiply_gate(up, gate, m.nonlinearity, step.rows);
  step.done(StepOp::kGateUp);
  project(step, up, {}, w.down, target, StepOp::kDown);
}

}  // namespace

void mlp_block(const Step& step, const Mlp& m, const MlpWeights& w, const Rows& x, const NormView& norm,
               const Target& target) {
  Operations& ops = step.ops;
  const Rows inner = step.work.inner.columns(0, m.size);
  if (m.changes_gates() ||
      (m.gated && (w.gate.transform != w.up.transform || adapts(step, w.gate) || adapts(step, w.up))))
    return separate_gates_mlp(step, m, w, x, norm, target);
  const Linear& first = m.gated ? w.gate : w.up;
  const Inputs in = ops.prepare(x, norm, step.rows, {&first, &w.up});
  step.done(StepOp::kNormQuantize);
  ops.project(in, {.w = &first, .y = inner, .up = m.gated ? &w.up : nullptr, .f = m.nonlinearity}, step.rows);
  step.done(StepOp::kGateUp);

  project(step, inner, view(m.inner, w.inner), w.down, target, StepOp::kDown);
}

}  // namespace quire
