// Inputs rounded to E4M3, with the values of base/float8.h, and how a prepared row holds them (cuda/linear/inputs.h).
//
// A prepared row of `blocks` blocks of 32 inputs, with zeros in place of inputs that the last block has not:
//
//   E4M3     [32 * blocks]   byte 16 h + 4 i + c of a block (h in {0, 1}, i and c in 0 .. 3) is input 8 i + kPairOrder[4 h + c]: those that
//                            lane 4 g + i multiplies are the codes of two words of weights
//   float32                  the row's scale, a power of two, and 12 unused bytes
#pragma once

#include <cstdint>

#include "base/float8.h"
#include "cuda/alphabet/alphabet.h"
#include "kernels/packed.h"

namespace quire::cuda {

inline constexpr int kFp8Block = kBlockInputs;  // bytes of a block
inline constexpr int kFp8InfoBytes = 16;        // of a row

struct Fp8Scale {
  float scale, factor;  // factor: 1 / scale
  bool none;            // the row is NaN
};
// As e4m3_exponent(). largest: the bits of the row's largest magnitude.
DEVICE Fp8Scale fp8_scale(uint32_t largest) {
  constexpr uint32_t kLeast = 127 + kLeastE4M3Exponent;
  if (!(bits_float(largest) < kLeastTooLargeForE4M3)) return {1, 1, true};
  const uint32_t carried = (largest + 0x1FFFFF) >> 23;
  const uint32_t exponent = carried < kLeast + 8 ? kLeast : carried - 8;
  return {bits_float(exponent << 23), bits_float((254 - exponent) << 23), false};
}

// As write_eight() (kernels/prepared_row.h), for kFp8. largest: as of fp8_scale().
DEVICE void write_fp8_eight(const float (&inputs)[8], int eight, int blocks, uint32_t largest, Global<uint8_t> row) {
  if (eight >= 4 * blocks) return;
  const Fp8Scale scale = fp8_scale(largest);
  const auto x = [&](int k) { return inputs[k] * scale.factor; };
  uint32_t words[2] = {pack_e4m3(x(0), x(4), x(1), x(5)), pack_e4m3(x(2), x(6), x(3), x(7))};
  if (scale.none) words[0] = words[1] = 0x7F7F7F7F;
  const auto to = row + (eight / 4 * kFp8Block + 4 * (eight % 4));
  store(to, Words<1>{{words[0]}});
  store(to + 16, Words<1>{{words[1]}});
  if (eight == 0) store(row + blocks * kFp8Block, Words<4>{{float_bits(scale.scale), 0, 0, 0}});
}

}  // namespace quire::cuda
