// Matrices made of rows of other packed matrices, as Backend::take_rows().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/device.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Writes the matrix whose row i is row rows[i] of `from` to `to`, both in memory of the device. Rows ascend. The panels go
// through the host, some MiB at a time: this is for loading. Nothing may run that uses the memory.
void take_rows(Device& device, const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to);

}  // namespace quire::cuda
