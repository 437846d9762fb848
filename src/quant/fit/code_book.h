// The numbers that codes stand for, and the nearest of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "quant/fit/lanes.h"

namespace quire {

// All integers of a range.
struct IntegerBook {
  float least, most;

  Lanes nearest(Lanes y) const {
    return round_lanes(least_of(greatest_of(y, in_all_lanes(least)), in_all_lanes(most)));
  }
  // Of a number that nearest() gave: it, less the least.
  uint8_t code(float number) const { return static_cast<uint8_t>(number - least); }
};

// 16 numbers in -128 .. 127 whose midpoints are multiples of 1/2: half-open intervals of that length have one nearest
// number each.
class TableBook {
 public:
  explicit TableBook(const std::array<float, 16>& numbers) : least(numbers[0]), most(numbers[0]) {
    for (const float number : numbers) least = std::min(least, number), most = std::max(most, number);
    for (size_t i = 0; i < kIntervals; ++i) {
      const float middle = (static_cast<float>(i) + 0.5f) / 2 - kMost;
      uint8_t best = 0;
      for (uint8_t code = 1; code < 16; ++code) {
        if (std::fabs(numbers[code] - middle) < std::fabs(numbers[best] - middle)) best = code;
      }
      codes_[i] = best;
      numbers_[i] = numbers[best];
    }
  }

  float least, most;

  Lanes nearest(Lanes y) const {
    const Lanes at = interval(y);
    Lanes found{};
    for (int lane = 0; lane < kLanes; ++lane) found[lane] = numbers_[static_cast<size_t>(at[lane])];
    return found;
  }
  uint8_t code(float number) const { return codes_[static_cast<size_t>((number + kMost) * 2)]; }

 private:
  static constexpr size_t kIntervals = 512;
  static constexpr float kMost = 128;
  static Lanes interval(Lanes y) {
    const Lanes at = (y + in_all_lanes(kMost)) * in_all_lanes(2);
    return least_of(greatest_of(at, in_all_lanes(0)), in_all_lanes(kIntervals - 1));
  }

  std::array<float, kIntervals> numbers_;
  std::array<uint8_t, kIntervals> codes_;
};

}  // namespace quire
