// Scalar text of what the vector kernels do lane by lane: the order of reductions, and exp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace quire {

inline constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;

// 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half.
template <class Op>
float reduce_tree(Lanes lanes, Op op) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] = op(lanes[i], lanes[i + half]);
  }
  return lanes[0];
}
inline float sum_lanes(const Lanes& lanes) {
  return reduce_tree(lanes, [](float a, float b) { return a + b; });
}

// e^x: at most 1 ulp from the rounded value on [-87.3, 88]; 0 below, e^88 above. Cody and Waite's reduction, Cephes'
// expf polynomial.
namespace exp_constants {
inline constexpr float kLowest = -87.33654f, kHighest = 88.0f;
inline constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
inline constexpr float kPolynomial[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                        4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}  // namespace exp_constants
inline float exp_lane(float x) {
  namespace c = exp_constants;
  if (!(x >= c::kLowest)) return 0.0f;  // NaN too: a score that is no number weighs nothing
  x = std::min(x, c::kHighest);
  const float n = std::nearbyint(x * c::kLog2E);
  float r = std::fma(n, -c::kLn2High, x);
  r = std::fma(n, -c::kLn2Low, r);
  float p = c::kPolynomial[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, c::kPolynomial[i]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  return y * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

inline float silu_lane(float x) { return x / (1.0f + exp_lane(-x)); }

}  // namespace quire
