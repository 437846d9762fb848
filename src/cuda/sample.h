// The best tokens of rows of logits on the device, so that a step need not download all logits: what ops/top.h says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/stream.h"
#include "ops/rows.h"

namespace quire::cuda {

// The `count` largest numbers of each row, count <= x.cols: their columns to columns [rows][count] and, unless nullptr, the
// numbers themselves to values [rows][count]. x starts at a multiple of 16 bytes, and so do its rows. scratch: top_bytes()
// bytes of the device, at a multiple of 16 bytes, which later launches may use again.
void top(Stream& stream, const Rows& x, int count, int rows, std::byte* scratch, int32_t* columns, float* values);
size_t top_bytes(int cols, int count, int rows);

}  // namespace quire::cuda
