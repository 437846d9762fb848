// The columns that other ranks have computed, from their blocks to their places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"

namespace quire::cuda {

// to[row][col] = the number that the rank of the column has: column c belongs to unit c / width, and rank r has the units
// [units * r / ranks, units * (r + 1) / ranks). Its own columns stay as they are. Grid: x: rows, y: columns / kThreads.
struct GatheredColumns {
  static constexpr const char* kName = "gathered_columns";
  static constexpr int kThreads = 128;

  Global<const float> blocks;  // of rank 0: rows of this part
  uint64_t block_floats;       // from rank to rank
  uint64_t block_stride;       // floats from row to row of a block
  RowsAt<float> to;
  int cols;
  int units, width;
  int rank, ranks;
  int unused = 0;

  DEVICE void operator()() const {
    const int col = block_y() * kThreads + thread();
    if (col >= cols) return;
    const auto owner = static_cast<int>((static_cast<int64_t>(col / width + 1) * ranks - 1) / units);
    if (owner == rank) return;
    const auto first = static_cast<int>(static_cast<int64_t>(units) * owner / ranks) * width;
    to.row(block_x())[col] =
        blocks[static_cast<uint64_t>(owner) * block_floats + static_cast<uint64_t>(block_x()) * block_stride +
               static_cast<uint64_t>(col - first)];
  }
};

}  // namespace quire::cuda
