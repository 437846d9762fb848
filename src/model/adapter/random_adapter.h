// Adapters of random numbers, for measurements.
#pragma once

#include <cstdint>
#include <span>

#include "model/adapter/adapter.h"
#include "model/tensors.h"

namespace quire {

// Changes the linears in `changed` (none: all that adapters can change), by matrices of `rank` in bfloat16, a little. The other
// arguments are as for load_adapter(). Throws Error (kResource).
Adapter random_adapter(const ModelConfig& config, const Weights& weights, std::span<const Tensor> changed, int rank,
                       uint64_t seed, Backend& backend, Team& team);

}  // namespace quire
