// Mamba-2 (Dao and Gu 2024, arXiv 2405.21060), computed as a recurrence.

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// channels: [x; B; C] before the convolution. x becomes the results.
void scan(const Step& step, int layer, const Mamba2& m, const Mamba2Weights& w, const Rows& channels, const Rows& dt) {
  const LayerStates states{step.cache, step.first_layer + layer, m.state()};
  const int inner = m.inner(), vectors = m.groups * m.state_dim;
  step.ops.convolve(
      states,
      {.x = channels, .weight = w.conv.data(), .bias = m.conv_bias ? w.conv_bias.data() : nullptr, .silu = true},
      step.states);
  step.ops.state_space(states,
                       {.x = channels.columns(0, inner),
                        .b = channels.columns(inner, vectors),
                        .c = channels.columns(inner + vectors, vectors),
                        .step = dt,
                        .bias = w.bias.data(),
                        .a = w.a.data(),
                        .d = w.d.data(),
                        .groups = m.groups},
                       step.states, step.rows);
}

}  // namespace

void advance_states(const Step& step, int layer, const Mamba2& m, const Mamba2Weights& w) {
  const Rows& kept = step.work.updates[static_cast<size_t>(layer)];
  scan(step, layer, m, w, kept.columns(0, m.channels()), kept.columns(m.channels(), m.heads));
}

void mamba2_block(const Step& step, int layer, const Mamba2& m, const Mamba2Weights& w, const NormView& norm,
                  const Target& target) {
  Operations& ops = step.ops;
  const int inner = m.inner(), vectors = m.groups * m.state_dim;
  const Rows all = step.work.projections.columns(0, inner + m.channels() + m.heads);
  const Rows gate = all.columns(0, inner), convolved = all.columns(inner, m.channels()),
             x = convolved.columns(0, inner), b = convolved.columns(inner, vectors),
             c = convolved.columns(inner + vectors, vectors), dt = all.columns(inner + m.channels(), m.heads);

  project(step, step.work.x, norm, w.in, {all}, StepOp::kQkv);
  const Rows* const parts[] = {&gate, &x, &b, &c, &dt};
  for (size_t i = 0; i < m.scales.size(); ++i) {
    if (m.scales[i] != 1) ops.scale(*parts[i], m.scales[i], step.rows);
  }
  step.done(StepOp::kQkv);

  keep_updates(step, layer, {convolved, dt});
  scan(step, layer, m, w, convolved, dt);
  ops.multiply_gate(x, gate, Nonlinearity::kSilu, step.rows);
  if (m.norm) {
    const auto group = static_cast<size_t>(inner / m.norm_groups);
    ops.normalize(x, {.norm = view(m.norm, w.norm), .groups = m.norm_groups, .weight_stride = group}, {x}, step.rows);
  }
  step.done(StepOp::kRecurrent);
  project(step, x, {}, w.out, target, StepOp::kO);
}

}  // namespace quire
