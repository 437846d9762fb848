// Which matrices of a model adapters can change.
#pragma once

#include "model/config.h"
#include "model/tensors.h"

namespace quire {

// Whether the blocks of a layer pass this linear to adapt() (model/blocks/blocks.h).
bool is_changeable(const ModelConfig& config, const Slot& slot);

}  // namespace quire
