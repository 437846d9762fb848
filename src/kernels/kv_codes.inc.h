// Keys and values to codes (kernels.h defines them): plain loops over single numbers, like rotate_store.inc.h, which
// includes this. Compilers vectorise them; the one sum is taken in the lanes of kernels/lanes.h.
#pragma once

#include <bit>
#include <cstdint>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"

namespace quire::QUIRE_ISA {
namespace {

// The bits of the largest magnitude. Magnitudes have the order of their bits, NaN the largest.
uint32_t largest_bits(const float* __restrict x, int count) {
  uint32_t bits = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
    bits = magnitude > bits ? magnitude : bits;
  }
  return bits;
}
inline constexpr uint32_t kInfinityBits = 0x7f800000;

// Writes the codes of `count` numbers and returns their scale.
float quantize_int8(const float* __restrict x, int count, int8_t* __restrict codes) {
  const uint32_t bits = largest_bits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  if (largest < kSmallestRounded || bits >= kInfinityBits) {
    for (int i = 0; i < count; ++i) {
      const auto one = std::bit_cast<uint32_t>(x[i]);
      codes[i] = static_cast<int8_t>((one & 0x7fffffff) != kInfinityBits ? 0 : one >> 31 ? -127 : 127);
    }
    return bits >= kInfinityBits ? largest : 0.0f;
  }
  const float inverse = 127.0f / largest;
  for (int i = 0; i < count; ++i) {  // the last bit of 1.5 * 2^23 is worth 1, so the sum's low byte is the code
    codes[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(__builtin_fmaf(x[i], inverse, 0x1.8p23f)));
  }
  return largest / 127.0f;
}

inline constexpr uint16_t kNoNumber = 0x7fc0;  // the scale of what is not finite

// The same for fp8 and int4; scales are bf16.
uint16_t quantize_fp8(const float* __restrict x, int count, uint8_t* __restrict codes) {
  const uint32_t bits = largest_bits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  if (largest < kSmallestFp8 || bits >= kInfinityBits) {
    for (int i = 0; i < count; ++i) codes[i] = 0;
    return bits >= kInfinityBits ? kNoNumber : uint16_t{0};
  }
  const uint16_t scale = f32_to_bf16(largest / 1.75f);
  const float inverse = 256.0f / bf16_to_f32(scale);  // no E4M3 but 448 is the nearest of what this makes larger
  for (int i = 0; i < count; ++i) {
    const float y = x[i] * inverse, size = __builtin_fabsf(y);
    const auto raw = std::bit_cast<uint32_t>(size);
    // Numbers from 2^-6 on keep 3 bits after the first; the others are multiples of 2^-9, the last bit of 2^14.
    const uint32_t normal = (raw + 0x7ffff + (raw >> 20 & 1)) >> 20,
                   subnormal = std::bit_cast<uint32_t>(size + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
    const uint32_t code = raw >= std::bit_cast<uint32_t>(0x1p-6f) ? normal - (120 << 3) : subnormal;
    codes[i] = static_cast<uint8_t>(code | (std::bit_cast<uint32_t>(y) >> 31 << 7));
  }
  return scale;
}

// The number 2 * code - 15 of each, and the sum of the squares of what is lost.
float round_to_int4(const float* __restrict x, int count, float scale, float* __restrict numbers) {
  const float half_inverse = 0.5f / scale;
  alignas(64) float chains[kLanes] = {};
  const auto round = [&](int begin, int lanes) __attribute__((always_inline)) {
    for (int i = 0; i < lanes; ++i) {
      float code = __builtin_fmaf(x[begin + i], half_inverse, 7.5f);
      code = code > 0.0f ? code : 0.0f;
      code = code < 15.0f ? code : 15.0f;
      const float number = 2.0f * ((code + 0x1.8p23f) - 0x1.8p23f) - 15.0f;
      numbers[begin + i] = number;
      const float error = __builtin_fmaf(-scale, number, x[begin + i]);
      chains[i] = __builtin_fmaf(error, error, chains[i]);
    }
  };
  int begin = 0;
  for (; begin + kLanes <= count; begin += kLanes) round(begin, kLanes);  // a constant, so that it becomes a vector
  round(begin, count - begin);
  for (int half = kLanes / 2; half > 0; half /= 2) {  // quire::sum_lanes(), in a copy for this instruction set
    for (int i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

uint16_t quantize_int4(const float* __restrict x, int count, uint8_t* __restrict codes) {
  const uint32_t bits = largest_bits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  if (largest < kSmallestRounded || bits >= kInfinityBits) {
    for (int i = 0; i < count; ++i) codes[i] = 0;
    return bits >= kInfinityBits ? kNoNumber : uint16_t{0};
  }
  alignas(64) float numbers[kMaxHeadDim];
  uint16_t best = 0;
  float least = 0;
  for (const float share : kInt4Shares) {
    const uint16_t scale = f32_to_bf16(share * (largest / 15.0f));
    const float error = round_to_int4(x, count, bf16_to_f32(scale), numbers);
    if (best != 0 && !(error < least)) continue;
    best = scale;
    least = error;
    for (int i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>((static_cast<int>(numbers[i]) + 15) / 2);
  }
  return best;
}

}  // namespace
}  // namespace quire::QUIRE_ISA
