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

// Half of an OCP "E8M0" scale: 2^(code - 128), subnormal for 0 and 1. 255, NaN in OCP, is 2^127, as ggml has it.
constexpr float half_e8m0_to_f32(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1u) << 23);
}

}  // namespace quire
