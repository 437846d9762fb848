// The sum of ranges that blocks of their own have multiplied (kernels/many_rows/row_tiles.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/int8/sums.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Adds the ranges of a linear in order, four outputs of a thread: blocks (outputs / (4 kThreads), rows). kInt8: they are
// integers, of LinearOfInt8Rows.
template <bool kInt8>
struct FinishSums {
  static constexpr const char* kName = kInt8 ? "finish_int8_sums" : "finish_sums";
  static constexpr int kThreads = 64;

  LinearWork work;
  Global<const float> partials;  // of kInt8 int32_t
  int32_t outputs;               // of all matrices, whole panel tiles
  int32_t tile_panels;           // kPanels of the kernel that made them

  DEVICE void operator()() const {
    const int at = 4 * (block_x() * kThreads + thread()), row = block_y();
    if (at >= outputs) return;
    int panel = at / kPanel;
    const LinearMatrix& m = find_matrix(work, panel, tile_panels);
    const ptrdiff_t range = static_cast<ptrdiff_t>(work.rows) * outputs;
    const auto from = partials + (static_cast<ptrdiff_t>(row) * outputs + at);
    Words<4> parts[kSplits];
    UNROLL
    for (int r = 0; r < kSplits; ++r) parts[r] = load<4>(from + r * range);
    Words<4> sums = parts[0];
    UNROLL
    for (int r = 1; r < kSplits; ++r) {
      UNROLL
      for (int k = 0; k < 4; ++k) {
        const uint32_t part = parts[r].w[k];
        sums.w[k] = kInt8 ? sums.w[k] + part : float_bits(bits_float(sums.w[k]) + bits_float(part));
      }
    }
    const int output = panel * kPanel + at % kPanel;
    if constexpr (kInt8)
      finish_int8_rows(m.w, m.data, output, work.x.data + static_cast<ptrdiff_t>(row) * work.x.stride, sums);
    finish_outputs(m, only_part(work, m), row, output, sums);
  }
};

}  // namespace quire::cuda
