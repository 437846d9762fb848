// Random weights in a file's layout, for synthetic models, benchmarks and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tensor_type.h"

namespace quire {

// A matrix of a loadable type as a file holds it: random blocks that give weights of deviation `sigma`, about centred on
// zero. cols: whole blocks.
std::vector<std::byte> synthetic_matrix(TensorType type, int rows, int cols, float sigma, uint64_t seed);

}  // namespace quire
