// Which layers each of several stages has (ops/stage_link.h).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "ops/stage_link.h"

namespace quire {

// The layers of so many stages, in order: at least one each, cut so that the stage with most bytes of matrices has as few as
// possible. The first stage also has embeddings, the last one the output. Throws Error: the model has fewer layers, or cannot be
// cut in so many places, because a layer reads keys and values of an earlier one, or needs more than its result.
std::vector<LayerRange> cut_layers(const ModelConfig& config, const WeightTotals& totals, int stages);

// Whether a stage may begin with this layer, which is not the first.
bool can_cut_before(const ModelConfig& config, int layer);

// Bytes of a stage's matrices as packed.
size_t stage_bytes(const ModelConfig& config, const WeightTotals& totals, const LayerRange& layers);

// Floats of a row that a stage hands on before layer `layer`: the residual stream, or all streams, and the embeddings of the
// layers that follow.
int border_width(const ModelConfig& config, int layer);

inline bool is_last(const ModelConfig& config, const LayerRange& layers) {
  return std::cmp_equal(layers.end, config.layers.size());
}

}  // namespace quire
