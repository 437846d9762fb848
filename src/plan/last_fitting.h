// The largest number that fits, by bisection.
#pragma once

namespace quire {

// The largest number in [low, high] for which fits(number) holds. `low` fits, and what fits a number fits all below it.
template <class Fits>
int last_fitting(int low, int high, const Fits& fits) {
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace quire
