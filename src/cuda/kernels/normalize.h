// Norms of rows, or of groups of a row's numbers (kernels/rows.h): one warp or one block for each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/warp_sums.h"
#include "kernels/types.h"

namespace quire::cuda {

// kGroupThreads: 32, a warp, or the threads of a block. The choice goes by `size` alone, and so does the order of each sum:
// a thread's numbers in the order of memory, in four chains, for its columns modulo 4; then a tree over them, over the
// warp's lanes and over the block's warps.
//
// Grid: x: rows * groups / kGroups, rounded up. Shared memory: kSharedBytes.
template <int kGroupThreads>
struct NormalizeRows {
  static constexpr bool kOfWarp = kGroupThreads == 32;
  static constexpr const char* kName = kOfWarp ? "normalize_rows_by_warps" : "normalize_rows";
  static constexpr int kThreads = kOfWarp ? 128 : kGroupThreads;
  static constexpr int kGroups = kThreads / kGroupThreads;  // of a block
  static constexpr int kWarps = kGroupThreads / 32;         // of a group
  static constexpr int kHeld = kOfWarp ? 8 : 4;             // times four numbers that stay in a thread's registers
  static constexpr int kMostHeld = kHeld * 4 * kGroupThreads;
  static constexpr int kSharedBytes = kOfWarp ? 0 : 2 * kWarps * 4;

  NormKind kind;
  uint8_t unused[3] = {};
  Flag accumulate;
  Flag aligned;  // every group of x, y, weight and bias starts at a multiple of 16 bytes
  int rows, groups, size;
  RowsAt<const float> x;
  RowsAt<float> y;
  Global<const float> weight, bias;  // may be nullptr
  size_t weight_stride;              // from group to group
  float epsilon, scale;

  static DEVICE int member() { return kOfWarp ? lane() : thread(); }
  // The column of a member's chunk.
  static DEVICE int column(int chunk) { return (chunk * kGroupThreads + member()) * 4; }

  // The sum of the members' chains. use: 0 or 1, of the shared memory.
  static DEVICE float sum_of(const float (&chains)[4], int use) {
    float sum = sum_of_warp((chains[0] + chains[1]) + (chains[2] + chains[3]));
    if constexpr (!kOfWarp) {
      const Shared<float> of_warps = shared<float>(static_cast<size_t>(use * kWarps) * sizeof(float));
      if (lane() == 0) of_warps[warp()] = sum;
      sync_block();
      sum = of_warps[lane() % kWarps];
      UNROLL
      for (int distance = kWarps / 2; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
    }
    return sum;
  }

  // f(column, the numbers there) for each chunk of the group's numbers.
  template <class F>
  DEVICE void for_chunks(Global<const float> from, const Four (&held)[kHeld], const F& f) const {
    UNROLL
    for (int chunk = 0; chunk < kHeld; ++chunk) {
      if (column(chunk) < size) f(column(chunk), held[chunk]);
    }
    for (int chunk = kHeld; chunk * 4 * kGroupThreads < size; ++chunk) {
      const int col = column(chunk);
      if (col < size) f(col, load_four(from + col, size - col, aligned));
    }
  }

  DEVICE void operator()() const {
    const int item = block_x() * kGroups + (kOfWarp ? warp() : 0);
    if (item < rows * groups) run(item);
  }

  // The group item % groups of the row item / groups. All members call it.
  DEVICE void run(int item) const {
    const int row = item / groups, group = item % groups;
    const Global<const float> from = x.row(row) + group * size;
    Four held[kHeld];
    UNROLL
    for (int chunk = 0; chunk < kHeld; ++chunk)
      held[chunk] = load_four(from + column(chunk), size - column(chunk), aligned);

    float mean = 0, factor = 1;
    if (kind == NormKind::kLayer) {
      float sums[4] = {};
      for_chunks(from, held, [&](int, const Four& numbers) {
        UNROLL
        for (int i = 0; i < 4; ++i) sums[i] += numbers.v[i];
      });
      mean = sum_of(sums, 0) / static_cast<float>(size);
    }
    if (kind != NormKind::kNone) {
      float squares[4] = {};
      for_chunks(from, held, [&](int col, const Four& numbers) {
        UNROLL
        for (int i = 0; i < 4; ++i) {
          const float distance = col + i < size ? numbers.v[i] - mean : 0;
          squares[i] = fma_of(distance, distance, squares[i]);
        }
      });
      const float sum = sum_of(squares, 1);
      factor = 1.0f / sqrt_of((kind == NormKind::kL2 ? sum : sum / static_cast<float>(size)) + epsilon);
    }

    const Global<float> to = y.row(row) + group * size;
    const size_t weights_at = static_cast<size_t>(group) * weight_stride;
    for_chunks(from, held, [&](int col, const Four& numbers) {
      const int left = size - col;
      Four value;
      UNROLL
      for (int i = 0; i < 4; ++i) value.v[i] = (numbers.v[i] - mean) * factor;
      if (weight != nullptr) {
        const Four by = load_four(weight + weights_at + col, left, aligned);
        UNROLL
        for (int i = 0; i < 4; ++i) value.v[i] *= by.v[i];
      }
      if (bias != nullptr) {
        const Four more = load_four(bias + weights_at + col, left, aligned);
        UNROLL
        for (int i = 0; i < 4; ++i) value.v[i] += more.v[i];
      }
      const Four old = accumulate ? load_four(to + col, left, aligned) : Four{};
      UNROLL
      for (int i = 0; i < 4; ++i) value.v[i] = accumulate ? fma_of(value.v[i], scale, old.v[i]) : value.v[i] * scale;
      store_four(to + col, value, left, aligned);
    });
  }
};

}  // namespace quire::cuda
