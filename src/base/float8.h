// 8-bit floats: conversions to float32, all exact.
#pragma once

#include <bit>
#include <cstdint>

namespace quire {

// OCP "E4M3FN": a sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, and all other bits set is NaN.
constexpr float e4m3_to_f32(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24, exponent = code >> 3 & 15u, mantissa = code & 7u;
  if ((code & 0x7fu) == 0x7f) return std::bit_cast<float>(sign | 0x7ff00000u);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-9
    const float value = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 120) << 23 | mantissa << 20);
}

// ---- Rows of numbers in E4M3, with a power of two as their scale
//
// A row is q 2^e, q in E4M3: e is the least exponent with which no magnitude is above 448 2^e, and at least kLeastE4M3Exponent. A
// number is rounded to the nearest, ties to even. A row that has a magnitude of 2^100 or more, or NaN, is NaN. Scales of powers of two
// make the numbers exact in bf16, and change no digits of a number but those of the smallest (as OCP's MX formats, which have
// such scales for blocks).
inline constexpr float kLargestE4M3 = 448, kLeastTooLargeForE4M3 = 0x1p100f;
inline constexpr int kLeastE4M3Exponent = -100;

// The exponent e of a row. largest: its largest magnitude, below kLeastTooLargeForE4M3.
constexpr int e4m3_exponent(float largest) {
  // 448 is 1.75 * 2^8: a mantissa above 0.75 carries.
  const auto rounded_up = static_cast<int>((std::bit_cast<uint32_t>(largest) + 0x1fffff) >> 23);
  const int exponent = rounded_up - 127 - 8;
  return exponent < kLeastE4M3Exponent ? kLeastE4M3Exponent : exponent;
}

// The exponent, as it is in a float's bits, of the row's least number that is not subnormal.
constexpr uint32_t e4m3_least_normal(int e) { return static_cast<uint32_t>(e - 6 + 127) << 23; }

// x to q 2^e. Adding 1.5 * 2^20 times the power of two below x (at least that of the least normal number), and subtracting it
// again, leaves three digits after the first.
constexpr float round_to_e4m3(float x, uint32_t least_normal) {
  const uint32_t own = std::bit_cast<uint32_t>(x) & 0x7f800000u, power = own > least_normal ? own : least_normal;
  const float rounder = std::bit_cast<float>((power + (20u << 23)) | 0x00400000u);
  return (x + rounder) - rounder;
}

// The code of the nearest number, at most 448; NaN stays NaN.
constexpr uint8_t f32_to_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  const float size = std::bit_cast<float>(magnitude);
  if (!(size < kLargestE4M3)) return static_cast<uint8_t>(sign | 0x7eu);
  const float rounded = round_to_e4m3(size, e4m3_least_normal(0));
  if (rounded < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(rounded * 0x1p9f));
  return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(rounded) - (120u << 23)) >> 20);
}

// Half of an OCP "E8M0" scale: 2^(code - 128), subnormal for 0 and 1. 255, NaN in OCP, is 2^127, as ggml has it.
constexpr float half_e8m0_to_f32(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1u) << 23);
}

}  // namespace quire
