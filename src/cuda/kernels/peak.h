// What bounds all other kernels: products on shared memory alone, and a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

enum class PeakNumbers { kBf16, kE4M3, kInt8 };

// Each warpgroup multiplies [64][16] in registers by [128][16] in shared memory, of bytes [64][32] by [128][32], `rounds` times eight.
// x: kNumbers words of numbers that are not 0, since a GPU multiplies zeros faster. y [blocks][kThreads]: the results.
template <PeakNumbers kOf>
struct MultiplyPeak {
  static constexpr const char* kName = "multiply_peak";
  static constexpr int kGroups = 3, kThreads = kGroups * 128, kColumns = 128;
  static constexpr int kNumbers = kColumns * 32, kSharedBytes = kNumbers * 4;
  static constexpr int64_t kMultiplyAdds =
      int64_t{64} * kColumns * (kOf == PeakNumbers::kBf16 ? 16 : 32) * kGroups;  // of a block in one product
  using Sum = std::conditional_t<kOf == PeakNumbers::kInt8, int32_t, float>;

  Global<const uint32_t> x;
  Global<float> y;
  int32_t rounds;
  int32_t unused = 0;

  DEVICE void operator()() const {
    const auto b = shared<uint32_t>(0);
    for (int i = thread(); i < kNumbers; i += kThreads) b[i] = x[i];
    fence_shared();
    sync_block();
    Sum d[kColumns / 2] = {};
    const uint32_t a[4] = {x[lane()], x[lane() + 32], x[lane() + 64], x[lane() + 96]};
    for (int round = 0; round < rounds; ++round) {
      fence_products();
      UNROLL
      for (int k = 0; k < 8; ++k) {
        const uint64_t rows = product_rows(b + k % 4 * 8);
        if constexpr (kOf == PeakNumbers::kE4M3) {
          multiply_e4m3_wide<kColumns>(d, a, rows);
        } else if constexpr (kOf == PeakNumbers::kInt8) {
          multiply_i8_wide<kColumns>(d, a, rows);
        } else {
          multiply_bf16_wide<kColumns>(d, a, rows);
        }
      }
      commit_products();
      wait_products<0>();
    }
    float sum = 0;
    UNROLL
    for (const Sum v : d) sum += static_cast<float>(v);
    y[block_x() * kThreads + thread()] = sum;
  }
};

// to = from, 16 bytes at a time.
struct CopyPeak {
  static constexpr const char* kName = "copy_peak";
  static constexpr int kThreads = 512, kEach = 4;

  Global<const uint32_t> from;
  Global<uint32_t> to;  // [blocks][kEach][kThreads][4]

  DEVICE void operator()() const {
    Words<4> words[kEach];
    const ptrdiff_t at = (static_cast<ptrdiff_t>(block_x()) * kEach * kThreads + thread()) * 4;
    UNROLL
    for (int k = 0; k < kEach; ++k) words[k] = load_once<4>(from + (at + k * kThreads * 4));
    UNROLL
    for (int k = 0; k < kEach; ++k) store(to + (at + k * kThreads * 4), words[k]);
  }
};

}  // namespace quire::cuda
