// Sine and cosine for RoPE, with the same bits whatever the C library.
#pragma once

#include <cstdint>

namespace quire {

struct SinCos {
  double sin, cos;
};

// angle: a float value. Within 2 ulp of double if |angle| < 2^27, and so the correctly rounded float, once rounded, for
// all but about one angle in 2^27. Larger angles, which no model has, use the C library.
SinCos sin_cos(double angle);

namespace sin_cos_terms {

// pi/2 = kHigh + kMiddle + kLow + 1.5e-33. The first two have 26 bits, so that their products with a quotient of less
// than 2^27 are exact, and so are the differences from an angle.
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
inline constexpr double kHigh = 0x1.921fb5p+0, kMiddle = 0x1.110b46p-26, kLow = 0x1.1a62633145c07p-54;
inline constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer

// fdlibm's minimax polynomials on |x| <= pi/4.
constexpr double sin_kernel(double x) {
  const double z = x * x;
  double p = 1.58969099521155010221e-10;
  p = p * z - 2.50507602534068634195e-08;
  p = p * z + 2.75573137070700676789e-06;
  p = p * z - 1.98412698298579493134e-04;
  p = p * z + 8.33333333332248946124e-03;
  p = p * z - 1.66666666666666324348e-01;
  return x + z * x * p;
}
constexpr double cos_kernel(double x) {
  const double z = x * x;
  double p = -1.13596475577881948265e-11;
  p = p * z + 2.08757232129817482790e-09;
  p = p * z - 2.75573143513906633035e-07;
  p = p * z + 2.48015872894767294178e-05;
  p = p * z - 1.38888888888741095749e-03;
  p = p * z + 4.16666666666666019037e-02;
  const double half = 0.5 * z, w = 1 - half;
  return w + ((1 - w - half) + z * z * p);
}

}  // namespace sin_cos_terms

// The same for |angle| < 2^27 alone; kernels for GPUs call it, too.
constexpr SinCos small_sin_cos(double angle) {
  namespace t = sin_cos_terms;
  const double quotient = (angle * t::kTwoOverPi + t::kRound) - t::kRound;
  const double rest = ((angle - quotient * t::kHigh) - quotient * t::kMiddle) - quotient * t::kLow;
  const double s = t::sin_kernel(rest), c = t::cos_kernel(rest);
  switch (static_cast<int64_t>(quotient) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace quire
