// Whether the matrices of each gated feed-forward have types that can be computed together.
#pragma once

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"

namespace quire {

// Both halves of a gated MLP are multiplied in one pass over their inputs, so they need inputs of one form. Experts are computed as groups, so
// theirs need one type. weights: their shapes. Throws Error (kUnsupported) that names file and layer.
void check_gates(const Checkpoint& checkpoint, const ModelConfig& config, const Weights& weights);

}  // namespace quire
