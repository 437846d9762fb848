// Models whose hidden states are rotated, so that no few of their dimensions are much larger than the others (QuaRot:
// Ashkboos et al. 2024, arXiv 2404.00456). The rotation is folded into the weights.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include "base/team.h"
#include "model/config.h"
#include "quantize/hf/source.h"

namespace quire {

// Why the hidden states of such a model cannot be rotated; empty: they can. An RMS norm without its weights commutes with
// rotations. So every norm on the residual stream must be one, its weights must be followed by linears that can take them,
// and nothing else may look at single dimensions.
std::string rotation_obstacle(const ModelConfig& config);

// Writes a directory of the same function, with x R (quantize/rotate/hadamard.h) for each hidden state x of the residual
// stream:
//
//   embeddings E                           E R
//   matrices that read norm(x) * g         W diag(g) R
//   matrices and biases that add to x      R^T W, b R
//   weights of norms                       1
//
// The output matrix reads norm(x) * g, so a tied one becomes a tensor of its own. Tensors keep their types; sums are in
// float64. Tokenizers and the other files are copied. `to` must not exist, and appears when it is whole. progress: in
// tensors; it may throw to stop. Throws Error: the obstacle, tensors that hold several matrices in a way that cannot be
// rotated, numbers that the type cannot hold, damaged weights, a full disk.
void write_rotated_model(const ModelSource& source, const std::filesystem::path& to, Team& team,
                         const std::function<void(size_t written, size_t total, const std::string& name)>& progress);

}  // namespace quire
