// Where factors of a linear's inputs can be folded into what computes these inputs, so that a model stays the same function.
#pragma once

#include <vector>

#include "model/config.h"
#include "model/tensors.h"

namespace quire {

// A norm or a matrix whose outputs nothing reads but the matrices `readers`.
struct FoldPoint {
  std::vector<Slot> readers;  // of the same inputs
  Slot producer;
  bool is_norm = true;    // its weight, and its bias, are divided; else the rows of a matrix, and its bias
  std::vector<int> tied;  // which of the producer's outputs an input is; empty: they are the same, one for one
};

// The fold points of a layer:
//
//   norm -> queries, keys, values (and the gate of attention's result)
//   values -> output projection: heads that share a value head share its factors
//   norm -> gate, up, of all experts, and their router
//   up -> down, where the result of a gate multiplies what `up` gives
//
// None where anything else reads or changes what lies between.
std::vector<FoldPoint> fold_points(const ModelConfig& config, int layer);

}  // namespace quire
