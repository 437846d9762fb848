// The numbers of the alphabet (alphabet/alphabet.h) on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/float8.h"
#include "base/half.h"
#include "cuda/alphabet/emulated_memory.h"

namespace quire::cuda {

DEVICE float bits_float(uint32_t v) { return std::bit_cast<float>(v); }
DEVICE uint32_t float_bits(float v) { return std::bit_cast<uint32_t>(v); }

DEVICE uint32_t pack_bf16(float low, float high) {
  // A NaN loses its payload, as on a GPU.
  const uint32_t l = low != low ? 0x7FFFu : f32_to_bf16(low), h = high != high ? 0x7FFFu : f32_to_bf16(high);
  return l | h << 16;
}
DEVICE uint32_t pack_f16(float low, float high) {
  const uint32_t l = low != low ? 0x7FFFu : f32_to_f16(low), h = high != high ? 0x7FFFu : f32_to_f16(high);
  return l | h << 16;
}
DEVICE float low_bf16(uint32_t v) { return bits_float(v << 16); }
DEVICE float high_bf16(uint32_t v) { return bits_float(v & 0xFFFF0000u); }
DEVICE float low_f16(uint32_t v) { return f16_to_f32(static_cast<uint16_t>(v)); }
DEVICE float high_f16(uint32_t v) { return f16_to_f32(static_cast<uint16_t>(v >> 16)); }
// A float32 holds the difference of two bf16 so that rounding it again rounds right: if it is not exact, the smaller number
// is below 2^-16 of the larger, and what is left of it cannot make or break a tie.
DEVICE uint32_t subtract_bf16(uint32_t a, uint32_t b) {
  return pack_bf16(low_bf16(a) - low_bf16(b), high_bf16(a) - high_bf16(b));
}
DEVICE float e4m3(uint8_t v) { return e4m3_to_f32(v); }
DEVICE uint32_t pack_e4m3(float x0, float x1, float x2, float x3) {
  return f32_to_e4m3(x0) | uint32_t{f32_to_e4m3(x1)} << 8 | uint32_t{f32_to_e4m3(x2)} << 16 |
         uint32_t{f32_to_e4m3(x3)} << 24;
}

DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t select = selector >> 4 * i & 7;  // __byte_perm() ignores the bit of prmt that replicates signs
    result |= static_cast<uint32_t>(bytes >> 8 * select & 0xFF) << 8 * i;
  }
  return result;
}

DEVICE float fma_of(float a, float b, float c) { return std::fma(a, b, c); }
DEVICE float exp_of(float x) { return std::exp(x); }
DEVICE float exp2_of(float x) {  // subnormal results are zero, as of ex2.approx.ftz
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}
DEVICE float log_of(float x) { return std::log(x); }
DEVICE float tanh_of(float x) { return std::tanh(x); }
DEVICE float sqrt_of(float x) { return std::sqrt(x); }
DEVICE float erf_of(float x) { return std::erf(x); }
// -0 is below +0, as on a GPU.
DEVICE float max_of(float a, float b) {
  if (a != a || b != b) return bits_float(0x7FFFFFFF);
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
DEVICE float min_of(float a, float b) {
  if (a != a || b != b) return bits_float(0x7FFFFFFF);
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

}  // namespace quire::cuda
