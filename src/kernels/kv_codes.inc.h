// Keys and values to codes (kernels.h defines them): plain loops over single numbers, like rotate_store.inc.h, which
// includes this. Compilers vectorise them; the one sum is taken in the lanes of kernels/lanes.h.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
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

// The numbers of the codes of x, and the sum of the squares of what is lost.
float round_to_int4(const float* __restrict x, int count, float scale, float* __restrict numbers) {
  const float inverse = 1.0f / scale;
  alignas(64) float chains[kLanes] = {};
  const auto round = [&](int begin, int lanes) __attribute__((always_inline)) {
    for (int i = 0; i < lanes; ++i) {
      const float wanted = x[begin + i] * inverse, size = __builtin_fabsf(wanted);
      float number = static_cast<float>(kInt4Levels[0]);
#pragma GCC unroll 8
      for (int level = 1; level < 8; ++level) {
        const auto low = static_cast<float>(kInt4Levels[level - 1]), high = static_cast<float>(kInt4Levels[level]);
        number = size > 0.5f * (low + high) ? high : number;
      }
      number = wanted < 0 ? -number : number;
      numbers[begin + i] = number;
      const float error = __builtin_fmaf(-scale, number, x[begin + i]);
      chains[i] = __builtin_fmaf(error, error, chains[i]);
    }
  };
  int begin = 0;
  for (; begin + kLanes <= count; begin += kLanes) round(begin, kLanes);  // a constant, so that it becomes a vector
  round(begin, count - begin);
  for (int half = kLanes / 2; half > 0; half /= 2) {  // sum_lanes() of kernels/lanes.h, compiled for this set
    for (int i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

// The code of a number.
inline constexpr auto kInt4Codes = [] {
  std::array<uint8_t, 256> codes{};
  for (int code = 0; code < 16; ++code)
    codes[static_cast<size_t>(int4_number(code) + 128)] = static_cast<uint8_t>(code);
  return codes;
}();

uint16_t quantize_int4(const float* __restrict x, int count, uint8_t* __restrict codes) {
  const uint32_t bits = largest_bits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  if (largest < kSmallestInt4 || bits >= kInfinityBits) {
    for (int i = 0; i < count; ++i) codes[i] = 8;
    return bits >= kInfinityBits ? kNoNumber : uint16_t{0};
  }
  alignas(64) float numbers[2][kMaxHeadDim];
  int now = 0;
  uint16_t best = 0;
  float least = 0;
  for (const float share : kInt4Shares) {
    const uint16_t scale = f32_to_bf16(share * (largest / 127.0f));
    const float error = round_to_int4(x, count, bf16_to_f32(scale), numbers[now]);
    if (best != 0 && !(error < least)) continue;
    best = scale;
    least = error;
    now = 1 - now;
  }
  for (int i = 0; i < count; ++i)
    codes[i] = kInt4Codes[static_cast<size_t>(static_cast<int>(numbers[1 - now][i]) + 128)];
  return best;
}

}  // namespace
}  // namespace quire::QUIRE_ISA
