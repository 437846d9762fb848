// What ops/pick.h says of rows of logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// A row's pick. Places are words of the results.
struct RowPick {
  int32_t best;
  int32_t mask;            // among the words of all masks; -1: none
  int32_t columns, count;  // the first of its columns among those of all rows, and how many
  int32_t at;              // of the best columns, their numbers, and the numbers of its columns
  // PickDraw. `drawn`: the place of its result.
  int32_t drawn = 0, best_only = 0;
  float temperature = 0;  // 0: nothing is drawn
  float top_p = 1, min_p = 0;
  double uniform = 0;

  DEVICE bool cuts() const { return best_only != 0 || top_p < 1 || min_p > 0; }
};

// A column that may be among the best.
struct Candidate {
  uint32_t order;  // grows with the number; 0: no column
  int32_t column;

  static DEVICE Candidate none() { return {0, 0x7FFFFFFF}; }
  static DEVICE Candidate of(float x, int32_t column) {
    const uint32_t bits = float_bits(x == 0 ? 0.0f : x);  // -0 equals 0
    if (is_nan(x)) return {0xFFFFFFFF, column};
    return {(bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, column};
  }
  DEVICE bool is_before(const Candidate& other) const {
    return order > other.order || (order == other.order && column < other.column);
  }
};

// A block finds the best of a part of a row: of kPart columns (kOfColumns), or of kPart candidates that such blocks have left.
// Each thread has kEach of them in registers. The best is found as often as the row's pick says, each time among the warps'
// best; then the warp that had it looks for its next. The order of candidates is total, so the cut into parts changes nothing.
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
  Global<const RowPick> picks;  // [rows]
  Global<const uint32_t> masks;
  Global<const int32_t> candidates;  // [rows][size]: columns, -1 for none; only if not kOfColumns
  Global<int32_t> to;                // candidates [rows][parts][most], or, from the only part, the results
  int size;                          // columns, or candidates, of a row
  int most;                          // that a part leaves: the most of any row
  Flag last;                         // it is the only part
  Flag aligned;                      // rows start at multiples of 16 bytes

  using Mine = Candidate[kEach];

  DEVICE void read(const RowPick& pick, Mine& mine) const {
    const Global<const float> row = x.row(block_x());
    if constexpr (kOfColumns) {
      UNROLL
      for (int i = 0; i < kEach; i += 4) {
        const int col = block_y() * kPart + (i / 4 * kThreads + thread()) * 4;
        const Four four = load_four(row + col, size - col, aligned);
        uint32_t allowed = 0xF;
        if (pick.mask >= 0 && col < size) allowed = masks[pick.mask + col / 32] >> (col % 32);
        UNROLL
        for (int j = 0; j < 4; ++j) {
          const bool counts = col + j < size && (allowed >> j & 1) != 0;
          mine[i + j] = counts ? Candidate::of(four.v[j], col + j) : Candidate::none();
        }
      }
    } else {
      const Global<const int32_t> list = candidates + static_cast<size_t>(block_x()) * static_cast<size_t>(size);
      UNROLL
      for (int i = 0; i < kEach; ++i) {
        const int at = block_y() * kPart + i * kThreads + thread();
        const int column = at < size && at % most < pick.best ? list[at] : -1;
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
    const RowPick pick = picks[block_x()];
    if (pick.best == 0) return;
    Mine mine;
    read(pick, mine);
    Candidate of_warp = best_of_warp(mine);
    const size_t part = static_cast<size_t>(block_x()) * static_cast<size_t>(blocks_y()) + block_y();
    const Global<int32_t> found = to + (last ? static_cast<size_t>(pick.at) : part * static_cast<size_t>(most));
    for (int i = 0; i < pick.best; ++i) {
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
        const bool any = best.order != 0;
        found[i] = any ? best.column : -1;
        if (last) found[pick.best + i] = any ? static_cast<int32_t>(float_bits(x.row(block_x())[best.column])) : 0;
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

// The numbers at the columns of each row's pick, after its best ones.
//
// Grid: x: rows.
struct ReadColumns {
  static constexpr const char* kName = "read_columns";
  static constexpr int kThreads = 128;

  RowsAt<const float> x;
  Global<const RowPick> picks;  // [rows]
  Global<const int32_t> columns;
  Global<int32_t> to;  // the results

  DEVICE void operator()() const {
    const RowPick pick = picks[block_x()];
    const Global<const float> row = x.row(block_x());
    for (int i = thread(); i < pick.count; i += kThreads)
      to[pick.at + 2 * pick.best + i] = static_cast<int32_t>(float_bits(row[columns[pick.columns + i]]));
  }
};

}  // namespace quire::cuda
