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

// `best` is sorted. Most numbers of a vocabulary are below all of it, so they are compared 16 at a time.
void top_of_row(const float* x, int cols, std::span<Ranked> best) {
  const auto count = static_cast<int>(best.size());
  for (int col = 0; col < count; ++col) best[static_cast<size_t>(col)] = {col, x[col]};
  std::ranges::sort(best, is_before);
  const auto take = [&](int col) {
    const Ranked found{col, x[col]};
    if (!is_before(found, best.back())) return;
    const auto at = std::ranges::upper_bound(best, found, is_before);
    std::copy_backward(at, best.end() - 1, best.end());
    *at = found;
  };
  constexpr int kLanes = 16;
  int col = count;
  for (; col + kLanes <= cols; col += kLanes) {
    const float least = best.back().value;
    bool any = std::isnan(least);
    for (int i = 0; i < kLanes; ++i) any |= x[col + i] > least;
    if (!any) continue;
    for (int i = 0; i < kLanes; ++i) take(col + i);
  }
  for (; col < cols; ++col) take(col);
}

}  // namespace

void top(const Compute& compute, const Rows& x, int rows, int count, std::span<Ranked> out) {
  assert(count >= 1 && count <= x.cols && out.size() >= static_cast<size_t>(rows) * static_cast<size_t>(count));
  compute.team.for_tiles(rows, [&](int row, int) {
    const auto size = static_cast<size_t>(count);
    top_of_row(x.row(row), x.cols, out.subspan(static_cast<size_t>(row) * size, size));
  });
}

}  // namespace quire
