// What the vector kernels do lane by lane, in scalar code: the order of reductions, exp and its relatives, rounding.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "kernels/nonlinearity.h"

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

// How attention with a bf16 cache rounds: to bf16, and to 0 below 2^-56. Then all products and their sums are integers
// times 2^-126, so none is denormal, and units that flush denormals to zero agree with units that do not.
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
                                        0.9802222847938538f, 1.4142124652862549f};  // 2^(r + 1/2), |r| <= 1/2
}  // namespace weight_constants
template <bool kRounded>
inline float bounded_weight_lane(float x) {
  namespace c = weight_constants;
  if (!(x >= c::kLowest)) return 0.0f;
  const float u = std::fma(x, c::kLog2E, -0.5f), whole = u + c::kWhole, r = u - (whole - c::kWhole);
  float p = c::kPolynomial[0];
  for (int i = 1; i < 5; ++i) p = std::fma(p, r, c::kPolynomial[i]);
  if constexpr (kRounded) p = (p + c::kRound) - c::kRound;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(whole) << 23));
}
inline float weight_lane(float x) { return bounded_weight_lane<true>(x); }
// Those with an int8 cache: not yet rounded, because a value's scale multiplies them first.
inline float unrounded_weight_lane(float x) { return bounded_weight_lane<false>(x); }

inline float silu_lane(float x) { return x / (1.0f + exp_lane(-x)); }
inline float sigmoid_lane(float x) { return std::isnan(x) ? x : 1.0f / (1.0f + exp_lane(-x)); }

// x + x s p(s) with s = x^2 near 0, 1 - 2 / (e^2|x| + 1) elsewhere (Cephes' tanhf): within 2 ulp.
namespace tanh_constants {
inline constexpr float kNear = 0.625f;
inline constexpr float kPolynomial[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f,
                                        -3.33332819422e-1f};
}  // namespace tanh_constants
inline float tanh_lane(float x) {
  namespace c = tanh_constants;
  const float size = std::abs(x);
  if (size >= c::kNear) return std::copysign(1.0f - 2.0f / (exp_lane(size + size) + 1.0f), x);
  const float s = x * x;
  float p = c::kPolynomial[0];
  for (int i = 1; i < 5; ++i) p = std::fma(p, s, c::kPolynomial[i]);
  return std::fma(p * s, x, x);
}

// cap tanh(x / cap)
inline float soft_cap_lane(float x, float cap) { return cap * tanh_lane(x / cap); }

// x + x p(x^2) near 0, 1 - exp(-(|x| + |x| p(|x|))) elsewhere: within 2 ulp. Both are minimax polynomials; the second is
// weighted by erfc, and erf(4) rounds to 1.
namespace erf_constants {
inline constexpr float kNear = 0.9f, kLargest = 4.0f;
inline constexpr float kNearPolynomial[] = {-0.0005892715417f, 0.004974317737f, -0.02675417252f,
                                            0.1128149033f,     -0.3761246502f,  0.1283791512f};
inline constexpr float kFarPolynomial[] = {1.066233199e-05f, -0.0003171349526f, 0.003619474592f, -0.02371351235f,
                                           0.1061805114f,    0.6351854205f,     0.1286400706f};
}  // namespace erf_constants
inline float erf_lane(float x) {
  namespace c = erf_constants;
  if (!(std::abs(x) >= c::kNear)) {
    const float s = x * x;
    float p = c::kNearPolynomial[0];
    for (int i = 1; i < 6; ++i) p = std::fma(p, s, c::kNearPolynomial[i]);
    return std::fma(p, x, x);
  }
  const float size = std::min(std::abs(x), c::kLargest);
  float p = c::kFarPolynomial[0];
  for (int i = 1; i < 7; ++i) p = std::fma(p, size, c::kFarPolynomial[i]);
  return std::copysign(1.0f - exp_lane(-std::fma(p, size, size)), x);
}

// log(1 + e^x) = max(x, 0) + log(1 + y) with y = e^-|x| <= 1, and log(1 + y) = y + y^2 p(y), p a minimax polynomial:
// within 3 ulp, however small. Above 20 it is x.
namespace softplus_constants {
inline constexpr float kPolynomial[] = {-0.003318419913f, 0.02020434849f, -0.0576639995f, 0.1068051085f, -0.1535536945f,
                                        0.1969539076f,    -0.249585852f,  0.3333051205f,  -0.4999993145f};
}  // namespace softplus_constants
inline float softplus_lane(float x) {
  namespace c = softplus_constants;
  const float y = exp_lane(-std::abs(x));
  float p = c::kPolynomial[0];
  for (int i = 1; i < 9; ++i) p = std::fma(p, y, c::kPolynomial[i]);
  return (0.0f > x ? 0.0f : x) + std::fma(p * y, y, y);
}

namespace gelu_constants {
inline constexpr float kSqrtHalf = 0.70710678118654752f;      // factor in erf
inline constexpr float kLinear = 0.79788456080286536f;        // factor in tanh: sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f * 0.797884560803f;  // times x^3
}  // namespace gelu_constants
inline float gelu_lane(float x) {
  const float half = 0.5f * x;
  return std::fma(half, erf_lane(x * gelu_constants::kSqrtHalf), half);
}
inline float gelu_tanh_lane(float x) {
  namespace c = gelu_constants;
  const float half = 0.5f * x;
  return std::fma(half, tanh_lane(x * std::fma(c::kCubic, x * x, c::kLinear)), half);
}

// Any nonlinearity but kClampedSwiglu.
inline float nonlinear_lane(Nonlinearity f, float x) {
  const float positive = 0.0f > x ? 0.0f : x;  // NaN stays
  switch (f) {
    case Nonlinearity::kSilu:
      return silu_lane(x);
    case Nonlinearity::kGelu:
      return gelu_lane(x);
    case Nonlinearity::kGeluTanh:
      return gelu_tanh_lane(x);
    case Nonlinearity::kRelu:
      return positive;
    case Nonlinearity::kRelu2:
      return positive * positive;
    case Nonlinearity::kSigmoid:
      return sigmoid_lane(x);
    default:
      return x;
  }
}

// f(gate) * up, for any nonlinearity. `alpha` and `limit`: of kClampedSwiglu.
inline float gated_lane(Nonlinearity f, float gate, float up, float alpha, float limit) {
  if (f != Nonlinearity::kClampedSwiglu) return nonlinear_lane(f, gate) * up;
  const float g = limit < gate ? limit : gate, below = limit < up ? limit : up,  // NaN stays
      clamped = -limit > below ? -limit : below;
  return (clamped + 1.0f) * (g / (1.0f + exp_lane(-(alpha * g))));
}

// An outlier of int8 rows in float16: what is too large becomes the largest number, but infinities stay.
constexpr uint16_t outlier_f16(float x) {
  constexpr float kLargest = 65504, kInfinity = std::numeric_limits<float>::infinity();
  return f32_to_f16(x == kInfinity || x == -kInfinity ? x : x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
}

}  // namespace quire
