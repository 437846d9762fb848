// Weights of any shape and format with random numbers, made in memory: for measuring speed.
#pragma once

#include <functional>

#include "base/team.h"
#include "model/config.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "ops/backend.h"
#include "quant/panel_format.h"

namespace quire {

// format_of: of the matrix of a slot. Numbers are small and finite; norms multiply by 1. The backend, whose memory
// they are in, must outlive them. Throws Error (kResource).
Weights random_weights(const ModelConfig& config, const std::function<const PanelFormat&(const Slot&)>& format_of,
                       Backend& backend, Team& team);

}  // namespace quire
