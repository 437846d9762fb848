#include "cli/figure/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace quire {
namespace {

constexpr int kMostTicks = 6;  // of a linear axis

// The least of 1, 2, 5 times a power of 10 of which kMostTicks - 1 steps cover `range`.
double round_step(double range) {
  const double least = range / (kMostTicks - 1), power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

void ChartAxis::cover(double value) {
  if (!std::isfinite(value) || (scale_ == Scale::kLog && value <= 0)) return;
  low_ = covers_ ? std::min(low_, value) : value;
  high_ = covers_ ? std::max(high_, value) : value;
  covers_ = true;
}

void ChartAxis::round_out() {
  if (scale_ == Scale::kLog) {
    low_ = covers_ ? std::pow(10, std::floor(std::log10(low_))) : 1;
    high_ = covers_ ? std::pow(10, std::ceil(std::log10(high_))) : 10;
    if (high_ <= low_) high_ = 10 * low_;
    return;
  }
  if (high_ <= low_) high_ = low_ + (low_ == 0 ? 1 : std::abs(low_));
  step_ = round_step(high_ - low_);
  low_ = std::floor(low_ / step_ + 1e-9) * step_;
  high_ = std::ceil(high_ / step_ - 1e-9) * step_;
}

double ChartAxis::at(double value, double begin, double end) const {
  double part = 0;
  if (scale_ == Scale::kLinear)
    part = (value - low_) / (high_ - low_);
  else if (value > 0)
    part = (std::log10(value) - std::log10(low_)) / (std::log10(high_) - std::log10(low_));
  return begin + (part > 0 ? std::min(part, 1.0) : 0.0) * (end - begin);
}

std::vector<double> ChartAxis::ticks() const {
  std::vector<double> values;
  if (scale_ == Scale::kLog) {
    const auto first = static_cast<int>(std::lround(std::log10(low_))),
               last = static_cast<int>(std::lround(std::log10(high_)));
    for (int power = first; power <= last; ++power) values.push_back(std::pow(10, power));
    return values;
  }
  const auto steps = static_cast<int>(std::lround((high_ - low_) / step_));
  for (int i = 0; i <= steps; ++i) values.push_back(low_ + i * step_);
  return values;
}

std::string si_text(double value) {
  constexpr std::array kPrefixes{"", "k", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.3g} {}", value, kPrefixes[prefix]);
}

}  // namespace quire
