// Multi-token prediction (DeepSeek-V3: arXiv 2412.19437): layers after those of a model, in the same files, that were trained
// with it to predict the tokens after the next one. Here they draft.
#pragma once

#include <optional>

#include "base/team.h"
#include "model/checkpoint.h"
#include "speculate/network/feature_predictor.h"

namespace quire {

bool has_predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model);

// The first such layer, as a model for load_weights(): like the model's last layer with attention, with norms like the
// model's output norm, and with embedding and output matrices of its own where they differ from the model's. std::nullopt:
// the checkpoint has none.
std::optional<ModelConfig> predicting_layer(const Checkpoint& checkpoint, const ModelConfig& model);

// Reads it. Where a checkpoint has several, the first one drafts all tokens of a chain. memory: most bytes of its matrices.
// Throws Error if the checkpoint has none, or its tensors cannot be loaded.
FeatureLayer read_mtp(const Checkpoint& checkpoint, const ModelConfig& target, Backend& backend, Team& team,
                      size_t memory);

// Throws what read_mtp would throw because of names, shapes and types, without reading the numbers. Counts embedding and
// output matrices of the layer, which published files repeat: only their numbers tell that they are the model's, and that
// read_mtp need not keep them.
FeatureTotals check_mtp(const Checkpoint& checkpoint, const ModelConfig& target);

}  // namespace quire
