// Would this model run? Answered without loading a weight.
#pragma once

#include "model/checkpoint.h"
#include "model/config.h"

namespace quire {

// The model's configuration. Throws Error when its family is unknown or its settings are out of range.
ModelConfig read_model_config(const Checkpoint& checkpoint);

// Throws the Error that loading would give first, unless every tensor that the model needs is there with its shape and
// a type that can be loaded, and no other is.
void check_tensors(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace quire
