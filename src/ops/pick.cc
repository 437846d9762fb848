#include "ops/pick.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <vector>

#include "base/bits.h"
#include "ops/top.h"

namespace quire {
namespace {

bool ranks_before(const Ranked& a, const Ranked& b) {
  if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
  return a.value > b.value || (!(a.value < b.value) && a.column < b.column);
}

}  // namespace

Picked::Picked(const Pick& pick, std::span<const std::byte> words) : columns(pick.columns) {
  assert(words.size() == pick.words() * sizeof(uint32_t));
  const auto count = static_cast<size_t>(pick.best);
  best = {reinterpret_cast<const int32_t*>(words.data()), count};
  const std::span numbers(reinterpret_cast<const float*>(words.data()) + count, count + columns.size());
  best_values = numbers.first(count);
  column_values = numbers.subspan(count);
}

void pick(std::span<const float> x, const Pick& pick, std::span<uint32_t> to) {
  assert(to.size() == pick.words());
  std::vector<Ranked> allowed;
  for (size_t i = 0; pick.best > 0 && i < x.size(); ++i) {
    if (pick.mask.empty() || has_bit(pick.mask, i)) allowed.push_back({static_cast<int32_t>(i), x[i]});
  }
  const auto count = static_cast<size_t>(pick.best), found = std::min(count, allowed.size());
  std::partial_sort(allowed.begin(), allowed.begin() + static_cast<ptrdiff_t>(found), allowed.end(), ranks_before);
  for (size_t i = 0; i < count; ++i) {
    to[i] = i < found ? static_cast<uint32_t>(allowed[i].column) : ~0u;
    to[count + i] = i < found ? std::bit_cast<uint32_t>(allowed[i].value) : 0;
  }
  for (size_t i = 0; i < pick.columns.size(); ++i)
    to[2 * count + i] = std::bit_cast<uint32_t>(x[static_cast<size_t>(pick.columns[i])]);
}

}  // namespace quire
