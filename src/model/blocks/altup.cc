// Gemma 3n's layer: alternating updates of several residual streams (AltUp: arXiv 2301.13310), and a low-rank path beside
// attention (LAuReL: arXiv 2411.07501). A row's coefficients come from a router that reads the stream of the layer.

#include <cmath>

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// coefficients = matrix * tanh(router * norm(x) / hidden)
void coefficients_of(const Step& step, const LayerWeights& w, const Rows& x, const Linear& matrix, const Rows& to) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  const int n = step.config.altup.streams;
  const Rows routed = work.coefficients.columns(n * n, n);
  const Inputs in =
      ops.prepare(x, view(step.config.output_norm, w.altup_norm), step.rows, {&w.altup_router}, Activations::kF32);
  ops.project(
      in,
      {.w = &w.altup_router, .y = routed, .scale = 1 / static_cast<float>(step.config.hidden), .as = Activations::kF32},
      step.rows);
  ops.tanh(routed, step.rows);
  const Inputs modalities = ops.prepare(routed, {}, step.rows, {&matrix}, Activations::kF32);
  ops.project(modalities, {.w = &matrix, .y = to, .as = Activations::kF32}, step.rows);
  step.done(StepOp::kRoute);
}

void laurel(const Step& step, const LayerSpec& spec, const LayerWeights& w, const Rows& to) {
  Workspace& work = step.work;
  const Rows low = work.inner.columns(0, spec.laurel_rank);
  project(step, work.normed, {}, w.laurel_left, {low}, StepOp::kO);
  project(step, low, {}, w.laurel_right, {work.branch}, StepOp::kO);
  step.ops.normalize(work.branch, view(step.config.output_norm, w.laurel_norm), {to, 1, true}, step.rows);
  step.done(StepOp::kO);
}

}  // namespace

void altup_begin(const Step& step, const Weights& w) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  ops.copy(work.x, work.streams[0], step.rows);
  for (size_t i = 1; i < work.streams.size(); ++i) {
    project(step, work.x, {}, w.altup_projections[i - 1], {work.streams[i]}, StepOp::kEmbed);
    ops.match_magnitude(work.streams[i], work.x, step.rows);
  }
}

void altup_end(const Step& step, const Weights& w) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  ops.copy(work.streams[0], work.x, step.rows);
  for (size_t i = 1; i < work.streams.size(); ++i) {
    project(step, work.streams[i], {}, w.altup_unembed[i - 1], {work.branch}, StepOp::kHead);
    ops.match_magnitude(work.branch, work.streams[0], step.rows);
    ops.add(work.branch, 1, work.x, step.rows);
  }
  ops.scale(work.x, 1 / static_cast<float>(work.streams.size()), step.rows);
}

void altup_layer(const Step& step, int layer, const LayerSpec& spec, const LayerWeights& w) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  const AltUp& altup = step.config.altup;
  const int n = altup.streams, rows = step.rows;
  const auto active = static_cast<size_t>(altup.active);

  // Predict all streams from all; the layer works on the active one.
  const Rows predict = work.coefficients.columns(0, n * n);
  coefficients_of(step, w, work.streams[active], w.altup_predict, predict);
  for (int i = 0; i < n; ++i) {
    const Rows& to = work.predicted[static_cast<size_t>(i)];
    ops.copy(work.streams[static_cast<size_t>(i)], to, rows);
    ops.combine(work.streams, predict.columns(i * n, n), {to, 1, true}, rows);
  }
  ops.copy(work.predicted[active], work.x, rows);

  // x = (x + attention + low-rank path) / sqrt(2)
  ops.normalize(work.x, view(spec.mixer_in, w.mixer_in), {work.normed}, rows);
  laurel(step, spec, w, work.normed);
  attention_block(step, layer, std::get<Attention>(spec.mixer), w.attention, view(spec.mixer_in, w.mixer_in),
                  {work.branch});
  ops.normalize(work.branch, view(spec.mixer_out, w.mixer_out), {work.x, 1, true}, rows);
  ops.add(work.normed, 1, work.x, rows);
  ops.scale(work.x, 1 / std::sqrt(2.0f), rows);

  mlp_block(step, std::get<Mlp>(spec.ffn), w.mlp, work.x, view(spec.ffn_in, w.ffn_in), {work.branch});
  ops.normalize(work.branch, view(spec.ffn_out, w.ffn_out), {work.x, 1, true}, rows);

  // Correct all streams by what the prediction of the active one missed.
  const Rows correct = work.coefficients.columns(0, n);
  coefficients_of(step, w, work.x, w.altup_correct, correct);
  ops.add(work.predicted[active], -1, work.x, rows);
  for (int i = 0; i < n; ++i) {
    const Rows& to = work.streams[static_cast<size_t>(i)];
    ops.copy(work.predicted[static_cast<size_t>(i)], to, rows);
    ops.add(work.x, 1, to, rows);
    ops.combine({&work.x, 1}, correct.columns(i, 1), {to, 1, true}, rows);
  }

  // The per-layer embedding goes to the other streams.
  const NormView output_scale{.kind = NormKind::kNone, .weight = altup.scales_output ? w.altup_scale.data() : nullptr};
  ops.normalize(work.streams[active], output_scale, {work.x}, rows);
  per_layer_block(step, layer, w, work.x, {work.normed});
  for (int i = 1; i < n; ++i) ops.add(work.normed, 1, work.streams[static_cast<size_t>(i)], rows);
}

}  // namespace quire
