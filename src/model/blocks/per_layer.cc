// Per-layer embeddings of Gemma 3n and 4: a table of which a token reads one row, so it can be larger than the layers.

#include <cmath>

#include "model/blocks/blocks.h"

namespace quire {

void per_layer_embeddings(const Step& step, const Weights& w) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  const auto layers = static_cast<int>(step.config.layers.size());
  const auto dim = static_cast<float>(step.config.per_layer_dim), hidden = static_cast<float>(step.config.hidden);
  project(step, work.x, {}, w.per_layer_projection, {work.per_layer, 1 / std::sqrt(hidden)}, StepOp::kEmbed);
  const HeadNorm norm{.norm = view(step.config.output_norm, w.per_layer_norm), .groups = layers};
  ops.normalize(work.per_layer, norm, {work.per_layer}, step.rows);
  ops.add_embeddings(w.per_layer_embedding.weight, work.ids, std::sqrt(dim), work.per_layer_table, work.per_layer);
  ops.scale(work.per_layer, 1 / std::sqrt(2.0f), step.rows);
}

void per_layer_block(const Step& step, int layer, const LayerWeights& w, const Rows& x, const Target& target) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  const int dim = step.config.per_layer_dim;
  const Rows gate = work.inner.columns(0, dim), mine = work.per_layer.columns(layer * dim, dim);
  project(step, x, {}, w.per_layer_gate, {gate}, StepOp::kGateUp);
  ops.multiply_gate(mine, gate, Nonlinearity::kGeluTanh, step.rows);
  project(step, mine, {}, w.per_layer_out, {work.branch}, StepOp::kDown);
  ops.normalize(work.branch, view(step.config.output_norm, w.per_layer_norm), target, step.rows);
  step.done(StepOp::kDown);
}

}  // namespace quire
