#include "quantize/solve/float_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace quire {

uint8_t e4m3_code(float x) {
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(x) >> 24 & 0x80u);
  const float magnitude = std::min(std::fabs(x), kLargestE4M3Number);
  constexpr float kSmallestNormal = 0x1p-6f;
  if (magnitude < kSmallestNormal)  // multiples of 2^-9; 8 of them are the smallest normal number, whose code follows
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::lrint(magnitude * 0x1p9f)));
  // The 20 lower bits of a float's mantissa are rounded away; a carry goes into the exponent, whose bias is 120 less.
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = (bits + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - (120u << 3)));
}

uint8_t e2m1_code(float x) {
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(x) >> 28 & 8u);
  const float magnitude = std::fabs(x);
  // The bounds between neighbours; at one, the even code.
  constexpr float kBounds[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  uint8_t code = 0;
  for (uint8_t i = 0; i < 7; ++i)
    code = static_cast<uint8_t>(code + (i % 2 == 0 ? magnitude > kBounds[i] : magnitude >= kBounds[i]));
  return static_cast<uint8_t>(sign | code);
}

float e2m1_number(uint8_t code) {
  const float magnitude = kE2M1Numbers[code & 7u];
  return code & 8u ? -magnitude : magnitude;
}

}  // namespace quire
