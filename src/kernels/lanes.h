// What the vector kernels do lane by lane, in scalar code: the order of reductions, exp and rounding.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace quire {

inline constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;

// 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half.
inline float sum_lanes(Lanes lanes) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// e^x: within 1 ulp of the rounded value on [-87.3, 88]; 0 below, e^88 above. Cody and Waite's reduction, Cephes' expf
// polynomial.
namespace exp_constants {
inline constexpr float kLowest = -87.33654f, kHighest = 88.0f;
inline constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kPolynomial[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                        4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}  // namespace exp_constants
inline float exp_lane(float x) {
  namespace c = exp_constants;
  if (!(x >= c::kLowest)) return 0.0f;  // NaN too: a NaN score has weight 0
  x = std::min(x, c::kHighest);
  const float n = std::nearbyint(x * c::kLog2E);
  float r = std::fma(n, -c::kLn2High, x);
  r = std::fma(n, -c::kLn2Low, r);
  float p = c::kPolynomial[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, c::kPolynomial[i]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  return y * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// How attention with a bf16 cache rounds: to bf16, and to 0 below 2^-56. Then all products and their sums are multiples
// of 2^-126, so none is denormal, and units that flush denormals to zero agree with units that do not.
inline constexpr float kSmallestRounded = 0x1p-56f;
constexpr uint16_t attention_bf16(float x) {
  return x < kSmallestRounded && x > -kSmallestRounded ? uint16_t{0} : f32_to_bf16(x);
}

// e^x for x <= 0, rounded to bf16: the weights of attention with a bf16 cache. 0 below kLowest, so that every weight is
// 0 or at least 2^-56. Computed as 2^n p with p in [1, 2]: p is a polynomial with an error of 3e-6, rounded by adding
// and subtracting a number whose last bit is worth 2^-7.
namespace weight_constants {
inline constexpr float kLowest = -38.8f, kLog2E = 1.44269504088896341f;
inline constexpr float kWhole = 0x1.8p23f, kRound = 0x1.8p16f;
inline constexpr float kPolynomial[] = {0.013534167781472206f, 0.07907979935407639f, 0.3397611975669861f,
                                        0.9802222847938538f, 1.4142124652862549f};  // of 2^(r + 1/2), |r| <= 1/2
}  // namespace weight_constants
inline float weight_lane(float x) {
  namespace c = weight_constants;
  if (!(x >= c::kLowest)) return 0.0f;
  const float u = std::fma(x, c::kLog2E, -0.5f), whole = u + c::kWhole, r = u - (whole - c::kWhole);
  float p = c::kPolynomial[0];
  for (int i = 1; i < 5; ++i) p = std::fma(p, r, c::kPolynomial[i]);
  p = (p + c::kRound) - c::kRound;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(whole) << 23));
}

inline float silu_lane(float x) { return x / (1.0f + exp_lane(-x)); }

}  // namespace quire
