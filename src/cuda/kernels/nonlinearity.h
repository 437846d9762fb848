// The nonlinear functions of kernels/lanes.h on a device, with the same bits: the same operations in the same order.
// nonlinear_of() and gated_of() are nonlinear_lane() and gated_lane() there; with those names, an argument of type
// quire::Nonlinearity would find both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"
#include "kernels/lanes.h"
#include "kernels/nonlinearity.h"

namespace quire::cuda {

DEVICE float magnitude_of(float x) { return bits_float(float_bits(x) & 0x7FFFFFFFu); }
DEVICE float with_sign_of(float magnitude, float x) {
  return bits_float((float_bits(magnitude) & 0x7FFFFFFFu) | (float_bits(x) & 0x80000000u));
}
DEVICE bool is_nan(float x) { return x != x; }

// Horner's scheme over kCoefficients[0 .. kLast], the highest power first.
template <auto& kCoefficients, size_t kLast>
DEVICE float polynomial(float x) {
  constexpr float kCoefficient = kCoefficients[kLast];  // a value, so that nothing refers to the host's array
  if constexpr (kLast == 0) {
    return kCoefficient;
  } else {
    return fma_of(polynomial<kCoefficients, kLast - 1>(x), x, kCoefficient);
  }
}

DEVICE float exp_lane(float x) {
  namespace c = exp_constants;
  if (!(x >= c::kLowest)) return 0.0f;  // NaN too
  x = c::kHighest < x ? c::kHighest : x;
  // |x log2(e)| < 2^22, so adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
  constexpr float kWhole = 0x1.8p23f;
  const float n = (x * c::kLog2E + kWhole) - kWhole;
  float r = fma_of(n, -c::kLn2High, x);
  r = fma_of(n, -c::kLn2Low, r);
  const float y = fma_of(polynomial<c::kPolynomial, 5>(r), r * r, r) + 1.0f;
  return y * bits_float(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

DEVICE float silu_lane(float x) { return x / (1.0f + exp_lane(-x)); }
DEVICE float sigmoid_lane(float x) { return is_nan(x) ? x : 1.0f / (1.0f + exp_lane(-x)); }

DEVICE float tanh_lane(float x) {
  namespace c = tanh_constants;
  const float size = magnitude_of(x);
  if (size >= c::kNear) return with_sign_of(1.0f - 2.0f / (exp_lane(size + size) + 1.0f), x);
  const float s = x * x;
  return fma_of(polynomial<c::kPolynomial, 4>(s) * s, x, x);
}

DEVICE float soft_cap_lane(float x, float cap) { return cap * tanh_lane(x / cap); }

DEVICE float erf_lane(float x) {
  namespace c = erf_constants;
  const float magnitude = magnitude_of(x);
  if (!(magnitude >= c::kNear)) return fma_of(polynomial<c::kNearPolynomial, 5>(x * x), x, x);
  const float size = c::kLargest < magnitude ? c::kLargest : magnitude;
  return with_sign_of(1.0f - exp_lane(-fma_of(polynomial<c::kFarPolynomial, 6>(size), size, size)), x);
}

DEVICE float softplus_lane(float x) {
  namespace c = softplus_constants;
  const float y = exp_lane(-magnitude_of(x));
  return (0.0f > x ? 0.0f : x) + fma_of(polynomial<c::kPolynomial, 8>(y) * y, y, y);
}

DEVICE float gelu_lane(float x) {
  const float half = 0.5f * x;
  return fma_of(half, erf_lane(x * gelu_constants::kSqrtHalf), half);
}
DEVICE float gelu_tanh_lane(float x) {
  namespace c = gelu_constants;
  const float half = 0.5f * x;
  return fma_of(half, tanh_lane(x * fma_of(c::kCubic, x * x, c::kLinear)), half);
}

DEVICE float relu_lane(float x) { return 0.0f > x ? 0.0f : x; }  // NaN stays

template <int N, class Function>
DEVICE void for_each_of(float (&x)[N], const Function& f) {
  UNROLL
  for (int k = 0; k < N; ++k) x[k] = f(x[k]);
}

// x = f(x), for any nonlinearity but kClampedSwiglu: branches once for all of them.
template <int N>
DEVICE void apply_nonlinearity(Nonlinearity f, float (&x)[N]) {
  switch (f) {
    case Nonlinearity::kSilu:
      return for_each_of(x, [](float v) { return silu_lane(v); });
    case Nonlinearity::kGelu:
      return for_each_of(x, [](float v) { return gelu_lane(v); });
    case Nonlinearity::kGeluTanh:
      return for_each_of(x, [](float v) { return gelu_tanh_lane(v); });
    case Nonlinearity::kRelu:
      return for_each_of(x, [](float v) { return relu_lane(v); });
    case Nonlinearity::kRelu2:
      return for_each_of(x, [](float v) { return relu_lane(v) * relu_lane(v); });
    case Nonlinearity::kSigmoid:
      return for_each_of(x, [](float v) { return sigmoid_lane(v); });
    default:
      return;
  }
}
DEVICE float nonlinear_of(Nonlinearity f, float x) {
  float one[1] = {x};
  apply_nonlinearity(f, one);
  return one[0];
}

// x = f(x), or gated f(x) * up, for any nonlinearity. `alpha` and `limit`: of kClampedSwiglu.
template <int N>
DEVICE void apply(Nonlinearity f, float (&x)[N], bool gated, const float (&up)[N], float alpha, float limit) {
  if (f == Nonlinearity::kClampedSwiglu) {
    UNROLL
    for (int k = 0; k < N; ++k) {
      const float g = limit < x[k] ? limit : x[k], below = limit < up[k] ? limit : up[k],  // NaN stays
          clamped = -limit > below ? -limit : below;
      x[k] = (clamped + 1.0f) * (g / (1.0f + exp_lane(-(alpha * g))));
    }
    return;
  }
  apply_nonlinearity(f, x);
  UNROLL
  for (int k = 0; k < N; ++k)
    if (gated) x[k] *= up[k];
}
DEVICE float gated_of(Nonlinearity f, float gate, float up, float alpha, float limit) {
  float one[1] = {gate};
  const float other[1] = {up};
  apply(f, one, true, other, alpha, limit);
  return one[0];
}

}  // namespace quire::cuda
