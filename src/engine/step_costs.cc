#include "engine/step_costs.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// Scale the terms to the order of 1, so that one initial spread fits all.
constexpr double kRows = 64, kAttended = 65536;

constexpr double kForget = 0.99;    // weight of a step after each following one
constexpr double kMostSpread = 10;  // above it nothing is forgotten, because the steps seen cannot tell the terms apart
constexpr double kOutlier = 2;      // larger deviations count as this factor

}  // namespace

int StepCosts::rows_within(double seconds, int computed) const {
  if (seconds <= 0) return 0;
  // Solves per_row * rows + per_attended * StepWork::attended = seconds for rows: b rows + a rows^2 / 2 = seconds.
  const double a = per_attended, b = per_row + a * (computed + 0.5);
  if (b <= 0 && a <= 0) return 1 << 20;
  const double rows = a > 0 ? (std::sqrt(b * b + 2 * a * seconds) - b) / a : seconds / b;
  return static_cast<int>(std::min(rows, double{1 << 20}));
}

StepCostModel::StepCostModel() : spread_{} {
  weights_ = {costs_.fixed, costs_.per_row * kRows, costs_.per_attended * kAttended};
  for (size_t i = 0; i < kTerms; ++i) spread_[i][i] = 1;
}

void StepCostModel::learn(StepWork work, double seconds) {
  // Errors are relative, so that long steps do not outweigh short ones.
  const double expected = std::max(costs_.seconds(work), 1e-5);
  const Vector x = {1 / expected, work.rows / kRows / expected,
                    static_cast<double>(work.attended) / kAttended / expected};
  Vector px{};
  double estimate = 0, power = 0, spread = 0;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) px[i] += spread_[i][j] * x[j];
    estimate += weights_[i] * x[i];
    spread += spread_[i][i];
  }
  for (size_t i = 0; i < kTerms; ++i) power += x[i] * px[i];
  const double error = std::clamp(seconds / expected, 1 / kOutlier, kOutlier) - estimate;
  const double forget = spread < kMostSpread ? kForget : 1;
  for (size_t i = 0; i < kTerms; ++i) weights_[i] += px[i] / (forget + power) * error;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) spread_[i][j] = (spread_[i][j] - px[i] * px[j] / (forget + power)) / forget;
  }
  costs_ = {std::max(0.0, weights_[0]), std::max(0.0, weights_[1] / kRows), std::max(0.0, weights_[2] / kAttended)};
}

}  // namespace quire
