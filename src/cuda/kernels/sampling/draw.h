// Draws from rows of logits: what ops/pick.h says of PickDraw. Weights count in units of kWeightUnit, so their sums are exact, and the
// cut into parts and threads changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/softmax_weight.h"
#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/sampling/sample.h"
#include "cuda/kernels/unroll.h"
#include "ops/pick.h"

namespace quire::cuda {

// Of one row, whose best columns have been found.
struct RowWeights {
  RowPick pick;
  Global<const float> x;
  Global<const uint32_t> mask;   // of the row
  Global<const int32_t> best;    // columns, the best first; -1: none
  Global<const int32_t> values;  // their numbers
  int size;                      // columns
  bool aligned;                  // x is at a multiple of 16 bytes

  DEVICE RowWeights(const RowPick& row, Global<const float> numbers, Global<const uint32_t> masks,
                    Global<const int32_t> results, int columns, bool numbers_aligned)
      : pick(row),
        x(numbers),
        mask(masks + (row.mask < 0 ? 0 : row.mask)),
        best(results + row.at),
        values(results + (row.at + row.best)),
        size(columns),
        aligned(numbers_aligned) {}

  // Whether there is a best number, and it is finite. Otherwise nothing has a weight.
  DEVICE bool exist() const { return best[0] >= 0 && (static_cast<uint32_t>(values[0]) & 0x7F800000u) != 0x7F800000u; }
  DEVICE float peak() const { return bits_float(static_cast<uint32_t>(values[0])); }
  DEVICE uint64_t units(float number) const {
    return static_cast<uint64_t>(softmax_weight<float, uint32_t>(number, peak(), pick.temperature) / kWeightUnit);
  }
  // Of column `col`, a multiple of 4, and the three after it.
  DEVICE void units_of_four(int col, uint64_t (&four)[4]) const {
    const Four numbers = load_four(x + col, size - col, aligned);
    uint32_t allowed = 0xF;
    if (pick.mask >= 0 && col < size) allowed = mask[col / 32] >> (col % 32);
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const bool counts = col + j < size && (allowed >> j & 1) != 0;
      four[j] = counts ? units(numbers.v[j]) : 0;
    }
  }
};

// The sum of each part's weights, for rows whose draw needs it.
//
// Grid: x: rows, y: parts of kPart columns.
struct SumWeights {
  static constexpr const char* kName = "sum_weights";
  static constexpr int kThreads = 256;
  static constexpr int kEach = 32;
  static constexpr int kPart = kThreads * kEach;
  static constexpr int kSharedBytes = kThreads * 8;

  RowsAt<const float> x;
  Global<const RowPick> picks;  // [rows]
  Global<const uint32_t> masks;
  Global<const int32_t> results;
  Global<uint64_t> sums;  // [rows][parts]
  int size;               // columns of a row
  Flag aligned;           // rows start at multiples of 16 bytes

  DEVICE void operator()() const {
    const RowPick pick = picks[block_x()];
    if (pick.temperature == 0.0f || pick.best_only != 0) return;
    const RowWeights weights(pick, x.row(block_x()), masks, results, size, aligned != 0);
    if (!weights.exist()) return;
    uint64_t sum = 0;
    UNROLL
    for (int i = 0; i < kEach / 4; ++i) {
      uint64_t four[4];
      weights.units_of_four(block_y() * kPart + (i * kThreads + thread()) * 4, four);
      sum += four[0] + four[1] + four[2] + four[3];
    }
    const Shared<uint64_t> all = shared<uint64_t>(0);
    all[thread()] = sum;
    sync_block();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (thread() < half) all[thread()] = all[thread()] + all[thread() + half];
      sync_block();
    }
    if (thread() == 0) sums[static_cast<size_t>(block_x()) * static_cast<size_t>(blocks_y()) + block_y()] = all[0];
  }
};

// The column that is drawn: the first one up to which the weights are more than `uniform` of their sum. If nothing is cut, its part is
// found by the parts' sums, and there each thread has kEach columns, one after the other. If something is, each thread has one of the
// best columns.
//
// Grid: x: rows.
struct DrawColumns {
  static constexpr const char* kName = "draw_columns";
  static constexpr int kThreads = SumWeights::kThreads;
  static constexpr int kEach = SumWeights::kEach;
  static constexpr int kSharedBytes = kThreads * (8 + 8 + 4);
  static_assert(Pick::kMostBest <= kThreads);

  RowsAt<const float> x;
  Global<const RowPick> picks;  // [rows]
  Global<const uint32_t> masks;
  Global<int32_t> results;
  Global<const uint64_t> sums;  // [rows][parts]
  int size;                     // columns of a row
  int parts;
  Flag aligned;  // rows start at multiples of 16 bytes
  int32_t unused;

  // The sum up to this thread, and that of all threads.
  struct Sums {
    uint64_t up_to, all;
  };
  static DEVICE Sums sum_up(uint64_t mine) {
    const Shared<uint64_t> list = shared<uint64_t>(0);
    uint64_t up_to = mine;
    list[thread()] = up_to;
    sync_block();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      const uint64_t before = thread() >= distance ? list[thread() - distance] : uint64_t{0};
      sync_block();
      up_to += before;
      list[thread()] = up_to;
      sync_block();
    }
    return {up_to, list[kThreads - 1]};
  }

  static DEVICE uint64_t target(const RowPick& pick, uint64_t total) {
    return static_cast<uint64_t>(pick.uniform * static_cast<double>(total));
  }

  DEVICE void draw_from_all(const RowWeights& weights, Global<const uint64_t> of_parts, Global<int32_t> to) const {
    uint64_t total = 0;
    for (int part = 0; part < parts; ++part) total += of_parts[part];
    uint64_t left = target(weights.pick, total);
    int part = 0;
    for (; of_parts[part] <= left; ++part) left -= of_parts[part];
    const int first = part * SumWeights::kPart + thread() * kEach;
    uint64_t mine = 0, four[4];
    for (int col = first; col < first + kEach; col += 4) {
      weights.units_of_four(col, four);
      mine += four[0] + four[1] + four[2] + four[3];
    }
    const uint64_t up_to = sum_up(mine).up_to;
    if (left >= up_to || left < up_to - mine) return;
    left -= up_to - mine;
    for (int col = first; col < first + kEach; col += 4) {
      weights.units_of_four(col, four);
      UNROLL
      for (int j = 0; j < 4; ++j) {
        if (left < four[j]) {
          to[0] = col + j;
          return;
        }
        left -= four[j];
      }
    }
  }

  DEVICE void draw_from_best(const RowWeights& weights, Global<const uint64_t> of_parts, Global<int32_t> to) const {
    constexpr double kUnit{kWeightUnit};
    const RowPick& pick = weights.pick;
    const int column = thread() < pick.best ? weights.best[thread()] : -1;
    const uint64_t mine =
        column >= 0 ? weights.units(bits_float(static_cast<uint32_t>(weights.values[thread()]))) : uint64_t{0};
    const Sums mass = sum_up(mine);
    uint64_t total = mass.all;
    if (pick.best_only == 0) {
      total = 0;
      for (int part = 0; part < parts; ++part) total += of_parts[part];
    }
    const bool all = pick.top_p >= 1;
    const double wanted = static_cast<double>(pick.top_p) * static_cast<double>(total);
    if (mass.all < total && (all || static_cast<double>(mass.all) < wanted)) {
      const uint64_t last = weights.units(bits_float(static_cast<uint32_t>(weights.values[pick.best - 1])));
      const double most = static_cast<double>(last) * kUnit * (1 + 0x1p-20) + 2 * kUnit;
      if (!(most < static_cast<double>(pick.min_p))) {
        if (thread() == 0) to[0] = -1;
        return;
      }
    }
    const bool stays = all || thread() == 0 || static_cast<double>(mass.up_to - mine) < wanted,
               counts = static_cast<double>(mine) * kUnit >= static_cast<double>(pick.min_p);
    const uint64_t kept = column >= 0 && stays && counts ? mine : 0;
    const Shared<uint64_t> list = shared<uint64_t>(kThreads * 8);
    const Shared<int32_t> columns = shared<int32_t>(kThreads * 16);
    list[thread()] = kept;
    columns[thread()] = column;
    sync_block();
    uint64_t sum = 0, up_to = 0;  // up_to: in the order of columns
    for (int i = 0; i < pick.best; ++i) {
      sum += list[i];
      if (columns[i] <= column) up_to += list[i];
    }
    const uint64_t left = target(pick, sum);
    if (kept > 0 && left < up_to && left >= up_to - kept) to[0] = column;
  }

  DEVICE void operator()() const {
    const RowPick pick = picks[block_x()];
    if (pick.temperature == 0.0f) return;
    const RowWeights weights(pick, x.row(block_x()), masks, results, size, aligned != 0);
    const Global<int32_t> to = results + pick.drawn;
    if (thread() == 0) {
      to[0] = weights.best[0];
      to[1] = weights.best[0] >= 0 ? weights.values[0] : 0;
      if (!weights.exist()) to[2] = -1;
    }
    if (!weights.exist()) return;
    const Global<const uint64_t> of_parts = sums + static_cast<size_t>(block_x()) * static_cast<size_t>(parts);
    if (pick.cuts()) {
      draw_from_best(weights, of_parts, to + 2);
    } else {
      draw_from_all(weights, of_parts, to + 2);
    }
  }
};

}  // namespace quire::cuda
