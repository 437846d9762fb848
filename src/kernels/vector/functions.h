// Exp, its relatives and the nonlinear functions: 16 lanes with the bits of kernels/lanes.h.
#pragma once

#include "kernels/nonlinearity.h"
#include "kernels/vector/alphabet.h"

namespace quire::QUIRE_ISA {
namespace {

QUIRE_INLINE Floats16 exp(Floats16 x) {
  namespace c = exp_constants;
  const Floats16 y = min(max(x, Floats16::all(c::kLowest)), Floats16::all(c::kHighest));
  const Floats16 n = round(mul(y, Floats16::all(c::kLog2E)));
  Floats16 r = fma(n, Floats16::all(-c::kLn2High), y);
  r = fma(n, Floats16::all(-c::kLn2Low), r);
  Floats16 p = Floats16::all(c::kPolynomial[0]);
  for (int i = 1; i < 6; ++i) p = fma(p, r, Floats16::all(c::kPolynomial[i]));
  const Floats16 e = add(fma(p, mul(r, r), r), Floats16::all(1.0f));
  const Floats16 power = bits(shift_left<23>(add(to_int(n), Ints16::all(127))));
  return where_at_least(mul(e, power), x, Floats16::all(c::kLowest));
}

template <size_t kCount>
QUIRE_INLINE Floats16 polynomial(const float (&coefficients)[kCount], Floats16 x) {
  Floats16 p = Floats16::all(coefficients[0]);
  for (size_t i = 1; i < kCount; ++i) p = fma(p, x, Floats16::all(coefficients[i]));
  return p;
}
QUIRE_INLINE Floats16 negative(Floats16 x) { return sub(Floats16::all(0.0f), x); }
QUIRE_INLINE Floats16 with_sign(Floats16 size, Floats16 of) {
  return bits(bor(bits(size), band(bits(of), Ints16::all(INT32_MIN))));
}

QUIRE_INLINE Floats16 silu(Floats16 x) { return div(x, add(Floats16::all(1.0f), exp(negative(x)))); }
QUIRE_INLINE Floats16 sigmoid(Floats16 x) {
  const Floats16 one = Floats16::all(1.0f);
  return where_number(div(one, add(one, exp(negative(x)))), x, x);
}
QUIRE_INLINE Floats16 tanh(Floats16 x) {
  namespace c = tanh_constants;
  const Floats16 size = abs(x), one = Floats16::all(1.0f), s = mul(x, x);
  const Floats16 far = sub(one, div(Floats16::all(2.0f), add(exp(add(size, size)), one)));
  const Floats16 near = fma(mul(polynomial(c::kPolynomial, s), s), x, x);
  return choose(with_sign(far, x), near, size, Floats16::all(c::kNear));
}
QUIRE_INLINE Floats16 soft_cap(Floats16 x, Floats16 cap) { return mul(cap, tanh(div(x, cap))); }
QUIRE_INLINE Floats16 erf(Floats16 x) {
  namespace c = erf_constants;
  const Floats16 near = fma(polynomial(c::kNearPolynomial, mul(x, x)), x, x);
  const Floats16 size = min(abs(x), Floats16::all(c::kLargest));
  const Floats16 far = sub(Floats16::all(1.0f), exp(negative(fma(polynomial(c::kFarPolynomial, size), size, size))));
  return choose(with_sign(far, x), near, abs(x), Floats16::all(c::kNear));
}
QUIRE_INLINE Floats16 softplus(Floats16 x) {
  const Floats16 y = exp(negative(abs(x)));
  return add(max(Floats16::all(0.0f), x), fma(mul(polynomial(softplus_constants::kPolynomial, y), y), y, y));
}
QUIRE_INLINE Floats16 gelu(Floats16 x) {
  const Floats16 half = mul(Floats16::all(0.5f), x);
  return fma(half, erf(mul(x, Floats16::all(gelu_constants::kSqrtHalf))), half);
}
QUIRE_INLINE Floats16 gelu_tanh(Floats16 x) {
  namespace c = gelu_constants;
  const Floats16 half = mul(Floats16::all(0.5f), x);
  return fma(half, tanh(mul(x, fma(Floats16::all(c::kCubic), mul(x, x), Floats16::all(c::kLinear)))), half);
}

// nonlinear_lane().
template <Nonlinearity kF>
QUIRE_INLINE Floats16 nonlinear(Floats16 x) {
  if constexpr (kF == Nonlinearity::kSilu) return silu(x);
  if constexpr (kF == Nonlinearity::kGelu) return gelu(x);
  if constexpr (kF == Nonlinearity::kGeluTanh) return gelu_tanh(x);
  if constexpr (kF == Nonlinearity::kSigmoid) return sigmoid(x);
  if constexpr (kF == Nonlinearity::kRelu || kF == Nonlinearity::kRelu2) {
    const Floats16 positive = max(Floats16::all(0.0f), x);
    return kF == Nonlinearity::kRelu ? positive : mul(positive, positive);
  }
  return x;
}
// gated_lane().
template <Nonlinearity kF>
QUIRE_INLINE Floats16 gated(Floats16 gate, Floats16 up, float alpha, float limit) {
  if constexpr (kF != Nonlinearity::kClampedSwiglu) return mul(nonlinear<kF>(gate), up);
  const Floats16 one = Floats16::all(1.0f), top = Floats16::all(limit);
  const Floats16 g = min(top, gate), clamped = max(Floats16::all(-limit), min(top, up));
  return mul(add(clamped, one), div(g, add(one, exp(negative(mul(Floats16::all(alpha), g))))));
}

// Calls run.operator()<f>(): the nonlinearity becomes a compile-time constant.
template <class Run>
QUIRE_INLINE void with_nonlinearity(Nonlinearity f, const Run& run) {
  switch (f) {
    case Nonlinearity::kNone:
      return run.template operator()<Nonlinearity::kNone>();
    case Nonlinearity::kSilu:
      return run.template operator()<Nonlinearity::kSilu>();
    case Nonlinearity::kGelu:
      return run.template operator()<Nonlinearity::kGelu>();
    case Nonlinearity::kGeluTanh:
      return run.template operator()<Nonlinearity::kGeluTanh>();
    case Nonlinearity::kRelu:
      return run.template operator()<Nonlinearity::kRelu>();
    case Nonlinearity::kRelu2:
      return run.template operator()<Nonlinearity::kRelu2>();
    case Nonlinearity::kSigmoid:
      return run.template operator()<Nonlinearity::kSigmoid>();
    case Nonlinearity::kClampedSwiglu:
      return run.template operator()<Nonlinearity::kClampedSwiglu>();
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
