#include "engine/step_costs.h"

#include <algorithm>
#include <cstddef>

namespace quire {
namespace {

constexpr auto& kKnots = StepCosts::kKnots;
constexpr size_t kCount = kKnots.size();

constexpr double kWindow = 50;     // steps that a knot averages over
constexpr double kStale = 0.9995;  // weight of a knot after each step with other rows
constexpr double kPrior = 0.2;     // what the neighbours weigh, in steps
constexpr double kOutlier = 2;     // larger deviations count as this factor
constexpr double kForget = 0.999;  // for per_attended
// Steps that differ by fewer tokens for each second that they take do not tell what attending costs: a token of a small
// model takes microseconds.
constexpr double kLeastSpread = 1e4;

// The knot before `rows`; not the last one.
size_t knot_below(int rows) {
  if (rows <= 8) return static_cast<size_t>(std::max(rows, 0));  // these knots are consecutive
  const auto above = std::upper_bound(kKnots.begin(), kKnots.end(), rows);
  return std::min(static_cast<size_t>(above - kKnots.begin()) - 1, kCount - 2);
}

size_t nearest_knot(int rows) {
  const size_t i = knot_below(rows);
  return kKnots[i + 1] - rows < rows - kKnots[i] ? i + 1 : i;
}

// Makes the first `count` values ascend: the ascending ones nearest to them, by weighted squares (pool adjacent
// violators).
void ascend(StepCosts::Table& values, StepCosts::Table weights, size_t count) {
  std::array<size_t, kCount> sizes{};
  size_t pools = 0;
  for (size_t i = 0; i < count; ++i) {
    double value = values[i], weight = weights[i];
    size_t size = 1;
    for (; pools > 0 && values[pools - 1] >= value; --pools) {
      value = (value * weight + values[pools - 1] * weights[pools - 1]) / (weight + weights[pools - 1]);
      weight += weights[pools - 1];
      size += sizes[pools - 1];
    }
    values[pools] = value, weights[pools] = weight, sizes[pools] = size;
    ++pools;
  }
  for (size_t end = count; pools-- > 0; end -= sizes[pools]) {
    const double value = values[pools];
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(end - sizes[pools]), sizes[pools], value);
  }
}

}  // namespace

double StepCosts::seconds_at(int rows) const {
  const size_t i = knot_below(rows);
  return table[i] + (table[i + 1] - table[i]) / (kKnots[i + 1] - kKnots[i]) * (rows - kKnots[i]);
}

int StepCosts::rows_within(double seconds, int computed, int others) const {
  if (seconds <= 0) return 0;
  const double before = seconds_at(others);
  int enough = 0, too_many = (1 << 20) + 1;
  while (too_many - enough > 1) {
    const int rows = (enough + too_many) / 2;
    StepWork work;
    work.add(rows, computed);
    const double more = seconds_at(others + rows) - before + per_attended * static_cast<double>(work.attended);
    (more <= seconds ? enough : too_many) = rows;
  }
  return enough;
}

double StepCostModel::of_rows(Sample s) const { return s.seconds - costs_.per_attended * s.attended; }

// The median of the last three steps; of two the shorter, because disturbances make steps longer.
StepCostModel::Sample StepCostModel::typical(const Knot& knot) const {
  const auto shorter = [&](const Sample& a, const Sample& b) { return of_rows(a) < of_rows(b); };
  const auto& [a, b, c] = knot.recent;
  if (knot.seen == 1) return a;
  if (knot.seen == 2) return std::min(a, b, shorter);
  return std::max(std::min(a, b, shorter), std::min(std::max(a, b, shorter), c, shorter), shorter);
}

void StepCostModel::add(Knot& knot, Sample s) {
  knot.recent[knot.next] = s;
  knot.next = (knot.next + 1) % knot.recent.size();
  if (knot.seen < 3) {  // too few for a mean
    ++knot.seen;
    knot.mean = typical(knot);
    knot.weight = knot.seen;
    return;
  }
  s = typical(knot);
  const double expected = std::max(knot.mean.seconds + costs_.per_attended * (s.attended - knot.mean.attended), 1e-6);
  s.seconds = std::clamp(s.seconds, expected / kOutlier, expected * kOutlier);
  knot.weight = std::min(knot.weight + 1, kWindow);
  const double gain = 1 / knot.weight;
  // Errors are relative, so that long steps do not outweigh short ones.
  const double dx = (s.attended - knot.mean.attended) / expected, dy = (s.seconds - knot.mean.seconds) / expected;
  covariance_ = kForget * covariance_ + (1 - gain) * dx * dy;
  variance_ = kForget * variance_ + (1 - gain) * dx * dx;
  costs_.per_attended = std::max(0.0, covariance_ / (variance_ + kLeastSpread * kLeastSpread));
  knot.mean.seconds += gain * (s.seconds - knot.mean.seconds);
  knot.mean.attended += gain * (s.attended - knot.mean.attended);
}

void StepCostModel::learn(StepWork work, double seconds) {
  if (work.rows <= 0) return;
  const size_t nearest = std::max<size_t>(1, nearest_knot(work.rows));
  for (Knot& knot : knots_) knot.weight *= kStale;
  const double here = costs_.seconds_at(work.rows);
  const double scale = here > 0 ? costs_.table[nearest] / here : 1;
  add(knots_[nearest], {seconds * scale, static_cast<double>(work.attended) * scale});
  fit();
}

void StepCostModel::fit() {
  StepCosts::Table own{}, values{}, weights{};
  for (size_t i = 1; i < kCount; ++i) own[i] = std::max(0.0, of_rows(knots_[i].mean));
  size_t left = 0;  // 0: none
  for (size_t i = 1; i < kCount; ++i) {
    size_t right = i + 1;
    while (right < kCount && knots_[right].weight == 0) ++right;
    if (right == kCount && knots_[i].weight == 0) break;
    // Between two known knots a line, next to one the guess, scaled.
    double prior = kGuess.table[i];
    if (left > 0 && right < kCount) {
      prior = own[left] + (own[right] - own[left]) * (kKnots[i] - kKnots[left]) / (kKnots[right] - kKnots[left]);
    } else if (const size_t known = left > 0 ? left : right; known < kCount) {
      prior *= own[known] / kGuess.table[known];
    }
    weights[i] = knots_[i].weight + kPrior;
    values[i] = (own[i] * knots_[i].weight + prior * kPrior) / weights[i];
    if (knots_[i].weight > 0) left = i;
  }
  // Nothing is measured at knot 0, so it must not pull at the others.
  weights[0] = 1e-9;
  ascend(values, weights, left + 1);
  // Steps of more rows than were seen take longer, also where few rows took as long as many.
  for (size_t i = left + 1; i < kCount; ++i) values[i] = values[left] * kGuess.table[i] / kGuess.table[left];
  values[0] = std::clamp(2 * values[1] - values[2], 0.0, values[1]);
  costs_.table = values;
}

}  // namespace quire
