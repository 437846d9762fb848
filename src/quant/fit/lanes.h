// Four groups of weights at a time, one in each lane of a vector: searches for scales then select where scalar code
// would branch, and their sums keep one order whatever the compiler does. 16 bytes are what every x86-64 and ARM has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

using Lanes [[gnu::vector_size(16)]] = float;
using LaneChoice [[gnu::vector_size(16)]] = int32_t;  // all bits set or none, as comparisons give it

inline constexpr int kLanes = 4;

inline Lanes in_all_lanes(float x) { return Lanes{x, x, x, x}; }
inline Lanes choose(LaneChoice choice, Lanes yes, Lanes no) { return choice ? yes : no; }
inline Lanes least_of(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes greatest_of(Lanes a, Lanes b) { return a > b ? a : b; }
inline Lanes magnitude(Lanes x) { return greatest_of(x, -x); }

// To the nearest integer, halves to even: |x| < 2^22. The sum leaves no bits below one.
inline Lanes round_lanes(Lanes x) {
  const Lanes whole = in_all_lanes(0x1.8p23f);
  return (x + whole) - whole;
}

// 1 / x; 0 where x is 0.
inline Lanes inverse_or_zero(Lanes x) {
  const Lanes one = in_all_lanes(1), zero = in_all_lanes(0);
  return choose(x != zero, one / choose(x != zero, x, one), zero);
}

// Four groups of n weights that follow each other, and how much the square of each weight's error counts.
template <int n>
struct GroupLanes {
  Lanes x[n], w[n], wx[n];  // wx: w * x

  // values, importance: [4 * n].
  GroupLanes(const float* values, const float* importance) {
    for (int i = 0; i < n; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        x[i][lane] = values[lane * n + i];
        w[i][lane] = importance[lane * n + i];
      }
      wx[i] = w[i] * x[i];
    }
  }
};

}  // namespace quire
