#include "speculate/draft_costs.h"

#include <algorithm>

namespace quire {
namespace {

constexpr double kLeast = 1e-5;     // seconds that errors are relative to, at least
constexpr double kForget = 0.98;    // weight of a draft after each following one
constexpr double kOutlierCost = 2;  // larger deviations count as this factor,
constexpr int kEarly = 16;          // and as its square in the first drafts, because the guess may be far off
// How far the first costs may be off, relative to a millisecond; beyond it nothing is forgotten, because the drafts
// seen cannot tell the terms apart.
constexpr double kScale = 1e-3, kMostSpread = 100;

}  // namespace

DraftCosts::DraftCosts(double per_pass, double per_row)
    : costs_{per_pass, per_row}, spread_{Pair{kScale * kScale, 0}, Pair{0, kScale * kScale}} {}

void DraftCosts::learn(DraftWork work, double seconds) {
  if (work.passes <= 0) return;
  // Errors are relative, so that long drafts do not outweigh short ones.
  const double expected = std::max(this->seconds(work), kLeast);
  const Pair x{work.passes / expected, work.rows / expected};
  Pair px{};
  double estimate = 0, power = 0;
  for (size_t i = 0; i < 2; ++i) {
    px[i] = spread_[i][0] * x[0] + spread_[i][1] * x[1];
    estimate += costs_[i] * x[i];
    power += x[i] * px[i];
  }
  const bool tells = spread_[0][0] + spread_[1][1] < kMostSpread * kScale * kScale;
  const double forget = tells ? kForget : 1;
  const double most = seen_ < kEarly ? kOutlierCost * kOutlierCost : kOutlierCost;
  seen_ = std::min(seen_ + 1, kEarly);
  const double error = std::clamp(seconds / expected, 1 / most, most) - estimate;
  for (size_t i = 0; i < 2; ++i) costs_[i] += px[i] / (forget + power) * error;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 2; ++j) spread_[i][j] = (spread_[i][j] - px[i] * px[j] / (forget + power)) / forget;
  }
}

}  // namespace quire
