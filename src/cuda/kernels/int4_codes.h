// The numbers of int4 codes (kernels/kernels.h), without tables in memory: a permutation of bytes looks them up.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "kernels/kernels.h"

namespace quire::cuda {

// kInt4Levels, a byte each.
inline constexpr uint32_t kLevelsLow = 6u | 18u << 8 | 31u << 16 | 44u << 24;
inline constexpr uint32_t kLevelsHigh = 58u | 75u << 8 | 96u << 16 | 127u << 24;
constexpr bool has_int4_levels() {
  for (int i = 0; i < 8; ++i) {
    if (static_cast<int>(((i < 4 ? kLevelsLow : kLevelsHigh) >> 8 * (i % 4)) & 255) != kInt4Levels[i]) return false;
  }
  return true;
}
static_assert(has_int4_levels());

DEVICE float int4_level(uint32_t index) {
  return static_cast<float>(static_cast<int>(permute_bytes(kLevelsLow, kLevelsHigh, index) & 255));
}
DEVICE float number_of_int4(uint32_t code) { return code < 8 ? -int4_level(7 - code) : int4_level(code - 8); }
// The bit where code i of eight begins: int4_shift().
DEVICE int shift_of_int4(int i) { return (i & 2 ? 0 : 16) + (i & 1 ? 4 : 0) + (i & 4 ? 8 : 0); }

// The level that is nearest to a magnitude, the lower of two: the number of midpoints below it.
DEVICE uint32_t nearest_int4_level(float size) {
  const int index = (size > 12.0f) + (size > 24.5f) + (size > 37.5f) + (size > 51.0f) + (size > 66.5f) +
                    (size > 85.5f) + (size > 111.5f);
  return static_cast<uint32_t>(index);
}
// The code of the nearest number.
DEVICE uint32_t nearest_int4(float wanted) {
  const uint32_t level = nearest_int4_level(wanted < 0 ? -wanted : wanted);
  return wanted < 0 ? 7 - level : 8 + level;
}

// kMeanShares: 1 / (t + 1), rounded.
DEVICE float mean_share(int t) { return 1.0f / static_cast<float>(t + 1); }

}  // namespace quire::cuda
