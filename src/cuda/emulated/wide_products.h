// Products of a warpgroup that run on, as a warp of it sees them: its 16 rows. They are computed when the warp waits for them, as late
// as is allowed, so that a missing wait shows as NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/emulated/clocks.h"
#include "cuda/emulated/machine.h"
#include "cuda/emulated/matrices.h"

namespace quire::cuda::emulated {

// The shared memory that product_rows() names: 1024 aligned rows, and the first of 16 columns (of bytes: 32).
struct ProductRows {
  size_t base;      // in the block's shared memory
  uint32_t column;  // in bytes: 0, 32, 64 or 96

  static uint64_t encode(size_t offset) { return uint64_t{1} << 63 | offset; }
  static bool valid(uint64_t descriptor) { return descriptor >> 63 != 0; }
  static ProductRows decode(uint64_t descriptor) {
    const size_t offset = descriptor & 0xFFFFFFFF;
    return {offset / 1024 * 1024, static_cast<uint32_t>(offset % 1024)};
  }
  // Where half of the numbers of a row lie: 16 bytes.
  size_t at(int row, int half) const {
    const auto n = static_cast<uint32_t>(row);
    return base + n / 8 * 1024 + n % 8 * 128 + ((column + 16 * static_cast<uint32_t>(half)) ^ n % 8 * 16);
  }
};

// Results of one product or a chain of them, held back from the kernel's registers.
struct ProductResult {
  std::array<void*, 32> registers;  // of each lane
  int each;                         // registers of a lane
  int pending;                      // products that are not done
  std::vector<uint32_t> values;     // [lane][each], of float or int32_t
};

struct PendingProduct {
  MatrixNumbers numbers;
  const void* result;  // registers of lane 0: names the ProductResult
  int columns;
  ProductRows b;
  bool add;  // to what the registers hold, not to zeros
  uint32_t group;
  BlockClocks::Past past;  // of the warp when it started
  LaneWords4 a;
};

class WideProducts {
 public:
  void reset() {
    products_.clear();
    results_.clear();
    group_ = 0;
    fenced_ = false;
    history_ = 0;
  }
  void fence() { fenced_ = true; }
  bool fenced() const { return fenced_; }
  void commit() { ++group_; }
  void start(MatrixNumbers numbers, std::span<void* const, 32> registers, int columns, uint64_t descriptor, bool add,
             const LaneWords4& a, const BlockClocks::Past& past);
  // Computes the products of all committed groups but the last `groups`. Returns the lane whose registers were written
  // while a product held them, or -1.
  int wait(int groups, const std::byte* shared);
  // The products that wait(groups) would compute.
  std::span<const PendingProduct> due(int groups) const;
  size_t pending() const { return products_.size(); }
  // Depends on all products that were started: their shapes and rows of b.
  uint64_t history() const { return history_; }

 private:
  std::vector<PendingProduct> products_;
  std::vector<ProductResult> results_;
  uint32_t group_ = 0;
  bool fenced_ = false;
  uint64_t history_ = 0;
};

}  // namespace quire::cuda::emulated
