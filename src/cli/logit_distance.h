// Distances between two rows of logits, computed in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

namespace quire {

inline double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(v - top);
  return top + std::log(sum);
}

// KL(expected || got) of the two softmaxes, in nats. Both have the same size, not 0.
inline double kl_divergence(std::span<const float> expected, std::span<const float> got) {
  const double a = log_sum_exp(expected), b = log_sum_exp(got);
  double kl = 0;
  for (size_t i = 0; i < expected.size(); ++i) kl += std::exp(expected[i] - a) * ((expected[i] - a) - (got[i] - b));
  return std::max(kl, 0.0);
}

// The larger of `so_far` and |expected - got|. A difference that is NaN or infinite counts as infinite, so it is never
// forgotten.
inline double widest_difference(double so_far, float expected, float got) {
  const double difference = std::abs(double{expected} - got);
  return std::isfinite(difference) ? std::max(so_far, difference) : std::numeric_limits<double>::infinity();
}

}  // namespace quire
