// EAGLE (arXiv 2401.15077): one decoder layer that was trained to predict a model's next hidden state.
#pragma once

#include <filesystem>

#include "base/team.h"
#include "speculate/network/feature_predictor.h"

namespace quire {

// The layer joins the embedding and the target's hidden state as they are, and uses the target's output norm and matrices.
// path: a safetensors file, or a folder with one. Throws Error naming file and tensor, or the target if it has no layer
// that such a head could be like.
FeatureLayer read_eagle(const std::filesystem::path& path, const ModelConfig& target, Backend& backend, Team& team);

// Throws what read_eagle would throw because of names, shapes and types, without reading the numbers.
FeatureTotals check_eagle(const std::filesystem::path& path, const ModelConfig& target);

}  // namespace quire
