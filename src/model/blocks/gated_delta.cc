// The gated delta net (Yang et al. 2024, arXiv 2412.06464), as in Qwen3-Next and Qwen 3.5.

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// channels: [q; k; v] before the convolution. v becomes the results.
void recur(const Step& step, int layer, const GatedDelta& m, const GatedDeltaWeights& w, const Rows& channels,
           const Rows& decay, const Rows& beta) {
  const LayerStates states{step.cache, step.first_layer + layer, m.state()};
  const int keys = m.keys();
  step.ops.convolve(states, {.x = channels, .weight = w.conv.data(), .silu = true}, step.states);
  step.ops.delta_rule(states,
                      {.q = channels.columns(0, keys),
                       .k = channels.columns(keys, keys),
                       .v = channels.columns(2 * keys, m.values()),
                       .decay = decay,
                       .beta = beta,
                       .factor = w.factor.data(),
                       .bias = w.bias.data(),
                       .key_heads = m.key_heads,
                       .interleaved = m.interleaved},
                      step.states, step.rows);
}

}  // namespace

void advance_states(const Step& step, int layer, const GatedDelta& m, const GatedDeltaWeights& w) {
  const Rows& kept = step.work.updates[static_cast<size_t>(layer)];
  const int channels = m.channels(), heads = m.value_heads;
  recur(step, layer, m, w, kept.columns(0, channels), kept.columns(channels, heads),
        kept.columns(channels + heads, heads));
}

void gated_delta_block(const Step& step, int layer, const GatedDelta& m, const GatedDeltaWeights& w,
                       const NormView& norm, const Target& target) {
  Operations& ops = step.ops;
  const Rows& all = step.work.projections;
  const int keys = m.keys(), values = m.values(), channels = m.channels();
  const Rows q = all.columns(0, keys), k = all.columns(keys, keys), v = all.columns(2 * keys, values),
             gate = all.columns(channels, values), decay = all.columns(channels + values, m.value_heads),
             beta = all.columns(channels + values + m.value_heads, m.value_heads);

  const Inputs in = ops.prepare(step.work.x, norm, step.rows, {&w.q, &w.k, &w.v, &w.gate, &w.decay, &w.beta});
  step.done(StepOp::kNormQuantize);
  const Projection projections[] = {{.w = &w.q, .y = q},       {.w = &w.k, .y = k},         {.w = &w.v, .y = v},
                                    {.w = &w.gate, .y = gate}, {.w = &w.decay, .y = decay}, {.w = &w.beta, .y = beta}};
  ops.project(in, projections, step.rows);
  step.done(StepOp::kQkv);

  const Rows qkv = all.columns(0, channels);
  keep_updates(step, layer, {qkv, decay, beta});
  recur(step, layer, m, w, qkv, decay, beta);
  ops.normalize(v, {.norm = view(m.norm, w.norm), .groups = m.value_heads}, {v}, step.rows);
  ops.multiply_gate(v, gate, Nonlinearity::kSilu, step.rows);
  step.done(StepOp::kRecurrent);
  project(step, v, {}, w.out, target, StepOp::kO);
}

}  // namespace quire
