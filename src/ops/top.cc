#include "ops/top.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace quire {
namespace {

// Also orders NaN, after all others.
bool is_before(const Ranked& a, const Ranked& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) {
    if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(b.value);
    return a.column < b.column;
  }
  return a.value != b.value ? a.value > b.value : a.column < b.column;
}

}  // namespace

// Most numbers of a vocabulary are below all of the best, so they are compared 16 at a time.
void top(std::span<const float> x, std::span<Ranked> best) {
  assert(!best.empty() && best.size() <= x.size());
  const auto cols = static_cast<int>(x.size()), count = static_cast<int>(best.size());
  const auto at = [x](int col) { return Ranked{col, x[static_cast<size_t>(col)]}; };
  for (int col = 0; col < count; ++col) best[static_cast<size_t>(col)] = at(col);
  std::ranges::sort(best, is_before);
  const auto take = [&](const Ranked& found) {
    if (!is_before(found, best.back())) return;
    const auto place = std::ranges::upper_bound(best, found, is_before);
    std::copy_backward(place, best.end() - 1, best.end());
    *place = found;
  };
  constexpr int kLanes = 16;
  int col = count;
  for (; col + kLanes <= cols; col += kLanes) {
    const float least = best.back().value, *lanes = &x[static_cast<size_t>(col)];
    bool any = std::isnan(least);
    for (int i = 0; i < kLanes; ++i) any |= lanes[i] > least;
    if (!any) continue;
    for (int i = 0; i < kLanes; ++i) take(at(col + i));
  }
  for (; col < cols; ++col) take(at(col));
}

}  // namespace quire
