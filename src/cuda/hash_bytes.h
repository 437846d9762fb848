// A hash to find equal values of kernels and of what they read; not for what others choose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire::cuda {

uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes);

}  // namespace quire::cuda
