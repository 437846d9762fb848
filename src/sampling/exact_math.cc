#include "sampling/exact_math.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numbers>

namespace quire {

double log2_exact(double x) {
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kMantissa) | uint64_t{1023} << 52);
  if (m >= std::numbers::sqrt2) {
    m /= 2;
    ++exponent;
  }
  // ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), |s| <= 0.172: the term after s^23 is below 1e-20.
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 0;
  for (int n = 23; n >= 1; n -= 2) series = series * s2 + 1.0 / n;
  return exponent + 2 * s * series * std::numbers::log2e;
}

double exp2_exact(double x) {
  x = std::clamp(x, -1000.0, 1000.0);
  auto whole = static_cast<int>(x);
  if (x - whole > 0.5) ++whole;
  if (x - whole < -0.5) --whole;
  // e^r by Taylor, |r| <= ln(2)/2: the term after r^15 is below 1e-20.
  const double r = (x - whole) * std::numbers::ln2;
  double series = 1;
  for (int n = 15; n >= 1; --n) series = series * r / n + 1;
  return series * std::bit_cast<double>(static_cast<uint64_t>(whole + 1023) << 52);
}

double power_exact(double base, double exponent) {
  if (exponent == 0) return 1;
  return base > 0 ? exp2_exact(exponent * log2_exact(base)) : 0;
}

}  // namespace quire
