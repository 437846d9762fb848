// An axis of a chart: which values it covers, where they lie, and where its ticks are.
#pragma once

#include <string>
#include <vector>

namespace quire {

class ChartAxis {
 public:
  enum class Scale { kLinear, kLog };
  explicit ChartAxis(Scale scale) : scale_(scale) {}

  // Widens the axis to the value. A logarithmic axis ignores values that are not above 0; both ignore what is not finite.
  void cover(double value);
  // Moves both ends out to round numbers: powers of 10, or whole ticks. An axis that covers nothing becomes 0 to 1, or 1 to
  // 10. Call it before what follows.
  void round_out();

  double low() const { return low_; }
  double high() const { return high_; }
  // Where the value lies between `begin` and `end`; values outside the axis lie at its ends.
  double at(double value, double begin, double end) const;
  std::vector<double> ticks() const;  // from low() to high()

 private:
  Scale scale_;
  bool covers_ = false;
  double low_ = 0, high_ = 0, step_ = 1;  // step_: between ticks of a linear axis
};

// "1.5 M", "20 k", "0.5 ": a number of at most three digits and the SI prefix of large ones.
std::string si_text(double value);

}  // namespace quire
