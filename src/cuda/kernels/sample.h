// The best columns of rows of logits, in the order of ops/top.h: largest first, of equal ones the first column, NaN after all
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// A column that may be among the best.
struct Candidate {
  uint32_t order;  // grows with the number: 0: no column; 1: NaN
  int32_t column;

  static DEVICE Candidate none() { return {0, 0x7FFFFFFF}; }
  static DEVICE Candidate of(float x, int32_t column) {
    const uint32_t bits = float_bits(x == 0 ? 0.0f : x);  // -0 equals 0
    if (is_nan(x)) return {1, column};
    return {(bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, column};
  }
  DEVICE bool is_before(const Candidate& other) const {
    return order > other.order || (order == other.order && column < other.column);
  }
};

// A block finds the best of a part of a row: of kPart columns (kOfColumns), or of kPart candidates that such blocks have left.
// Each thread has kEach of them in registers. The best is found `count` times, each time among the warps' best; then the
// warp that had it looks for its next. The order of candidates is total, so the cut into parts changes nothing.
//
// Grid: x: rows, y: parts.
template <bool kOfColumns>
struct BestOfParts {
  static constexpr const char* kName = kOfColumns ? "best_of_columns" : "best_of_candidates";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kEach = kOfColumns ? 32 : 16;
  static constexpr int kPart = kThreads * kEach;
  static constexpr int kSharedBytes = 2 * kWarps * 8;

  RowsAt<const float> x;
  Global<const int32_t> candidates;  // [rows][size]: columns, -1 for none; only if not kOfColumns
  Global<int32_t> columns;           // [rows][parts][count]; -1: none
  Global<float> values;              // [rows][count], for the only part; nullptr: not wanted
  int size;                          // columns, or candidates, of a row
  int count;

  using Mine = Candidate[kEach];

  DEVICE void read(Mine& mine) const {
    const Global<const float> row = x.row(block_x());
    if constexpr (kOfColumns) {
      UNROLL
      for (int i = 0; i < kEach; i += 4) {
        const int col = block_y() * kPart + (i / 4 * kThreads + thread()) * 4;
        const Four four = load_four(row + col, size - col, true);
        UNROLL
        for (int j = 0; j < 4; ++j)
          mine[i + j] = col + j < size ? Candidate::of(four.v[j], col + j) : Candidate::none();
      }
    } else {
      const Global<const int32_t> list = candidates + static_cast<size_t>(block_x()) * static_cast<size_t>(size);
      UNROLL
      for (int i = 0; i < kEach; ++i) {
        const int at = block_y() * kPart + i * kThreads + thread();
        const int column = at < size ? list[at] : -1;
        mine[i] = column >= 0 ? Candidate::of(row[column], column) : Candidate::none();
      }
    }
  }

  static DEVICE Candidate best_of_warp(const Mine& mine) {
    Candidate best = mine[0];
    UNROLL
    for (int i = 1; i < kEach; ++i)
      if (mine[i].is_before(best)) best = mine[i];
    UNROLL
    for (int distance = 16; distance > 0; distance /= 2) {
      const Candidate other{shuffle_xor(best.order, distance), shuffle_xor(best.column, distance)};
      if (other.is_before(best)) best = other;
    }
    return best;
  }

  DEVICE void operator()() const {
    Mine mine;
    read(mine);
    Candidate of_warp = best_of_warp(mine);
    const size_t first =
        (static_cast<size_t>(block_x()) * static_cast<size_t>(blocks_y()) + block_y()) * static_cast<size_t>(count);
    for (int i = 0; i < count; ++i) {
      // Two lists in turn: this one is read while the next is written.
      const Shared<uint32_t> list = shared<uint32_t>(static_cast<size_t>(i % 2 * kWarps) * 8);
      if (lane() == 0) store(list + warp() * 2, Words<2>{{of_warp.order, static_cast<uint32_t>(of_warp.column)}});
      sync_block();
      Candidate best = Candidate::none();
      UNROLL
      for (int w = 0; w < kWarps; ++w) {
        const Words<2> words = load<2>(list + w * 2);
        const Candidate other{words.w[0], static_cast<int32_t>(words.w[1])};
        if (other.is_before(best)) best = other;
      }
      if (thread() == 0) {
        const bool found = best.order != 0;
        columns[first + i] = found ? best.column : -1;
        if (values != nullptr && found) values[first + i] = float(x.row(block_x())[best.column]);
      }
      if (best.order != 0 && best.column == of_warp.column) {
        UNROLL
        for (int j = 0; j < kEach; ++j)
          if (mine[j].column == best.column) mine[j] = Candidate::none();
        of_warp = best_of_warp(mine);
      }
    }
  }
};

}  // namespace quire::cuda
