// 16-bit floats: conversions that are exact or round to nearest even, with the same bits as the CPU's instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace quire {

// Exact. A signalling NaN comes out quiet, as from F16C.
constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u));
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to nearest even; overflows to infinity; NaN becomes a quiet NaN with the top of its payload.
constexpr uint16_t f32_to_f16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t h = 0;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and up
    h = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: next to 0.5, a float's last bit is 2^-24, f16's smallest
    h = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    h = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return static_cast<uint16_t>(sign | h);
}

// Exact, NaN payloads included.
constexpr float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Rounds to nearest even, subnormals too; NaN becomes a quiet NaN with the top of its payload.
constexpr uint16_t f32_to_bf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace quire
