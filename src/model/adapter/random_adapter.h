// Adapters of random numbers, for measurements.
#pragma once

#include <cstdint>

#include "model/adapter/adapter.h"

namespace quire {

// Changes all linears that adapters can change, by matrices of `rank` in bfloat16, a little. The other arguments are as for
// load_adapter(). Throws Error (kResource).
Adapter random_adapter(const ModelConfig& config, const Weights& weights, int rank, uint64_t seed, Backend& backend,
                       Team& team);

}  // namespace quire
