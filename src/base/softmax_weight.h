// The weight of a token that may be drawn: its probability relative to the best token's, rounded so that sums are exact. The sampler,
// ops/pick.h and the kernels of a GPU have it from here: the same operations in the same order, so the same bits.
#pragma once

#include <bit>
#include <limits>

namespace quire {

// Weights are multiples of this, at most 1. A double holds any sum of 2^20 such weights exactly (33 + 20 = 53 bits).
inline constexpr float kWeightUnit = 0x1p-33f;

// Floats is float, or a vector of them; Bits has an unsigned integer for each.

// e^x for x <= 0, with relative error below 2e-7; e^-87 below -87, where floats end.
template <class Floats, class Bits>
constexpr Floats exp_up_to_0(Floats x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRound = 0x1.8p23f;
  // ln 2 in two parts; the first has few enough bits that n times it is exact.
  constexpr float kLn2High = 0x1.63p-1f;
  constexpr float kLn2Low = -0x1.bd0106p-13f;
  x = x > -87.0f ? x : Floats{} - 87.0f;
  const Floats shifted = x * 0x1.715476p0f + kRound;
  const Floats n = shifted - kRound;
  const Floats r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2)/2
  // Taylor to r^7: the next term, 0.347^8 / 8!, is 5e-9.
  Floats p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n: move the integer from the low bits of `shifted` to the exponent; its upper bits are shifted out.
  return p * std::bit_cast<Floats>((std::bit_cast<Bits>(shifted) + 127u) << 23);
}

// exp((logit - peak) / temperature), rounded to kWeightUnit; temperature > 0. The peak, the largest logit, is finite; its weight is 1.
template <class Floats, class Bits>
constexpr Floats softmax_weight(Floats logit, float peak, float temperature) {
  const Floats w = exp_up_to_0<Floats, Bits>((logit - peak) / temperature);
  // Below 2^-10 a float may be finer than the unit; adding 1.5 * 2^-10, whose last bit is the unit, rounds it. From
  // 2^-10 the last bit of w is the unit or more.
  constexpr float kRound = 0x1.8p-10f;
  static_assert(kRound * std::numeric_limits<float>::epsilon() / 1.5f == kWeightUnit);
  return w < 0x1p-10f ? (w + kRound) - kRound : w;
}

}  // namespace quire
