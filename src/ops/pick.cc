#include "ops/pick.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "base/softmax_weight.h"
#include "ops/top.h"

namespace quire {
namespace {

bool ranks_before(const Ranked& a, const Ranked& b) {
  if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
  return a.value > b.value || (!(a.value < b.value) && a.column < b.column);
}

uint64_t units_of(float x, float peak, float temperature) {
  return static_cast<uint64_t>(softmax_weight<float, uint32_t>(x, peak, temperature) / kWeightUnit);
}

// A column and its weight, in units.
struct Weighed {
  int32_t column;
  uint64_t units;
};

// What top_p and min_p leave of the best columns, which come in their order; nothing if they may leave columns that rank after them.
// total: of all weights.
std::vector<Weighed> cut_best(std::vector<Weighed> best, const PickDraw& draw, uint64_t total) {
  constexpr double kUnit{kWeightUnit};
  const double wanted = draw.top_p < 1 ? static_cast<double>(draw.top_p) * static_cast<double>(total)
                                       : std::numeric_limits<double>::infinity();
  uint64_t mass = 0;
  size_t count = 0;
  while (count < best.size() && (count == 0 || static_cast<double>(mass) < wanted)) mass += best[count++].units;
  if (mass < total && static_cast<double>(mass) < wanted) {
    // A column that ranks later has a lower number, but its weight may be a rounding error above.
    const double most = static_cast<double>(best.back().units) * kUnit * (1 + 0x1p-20) + 2 * kUnit;
    if (!(most < static_cast<double>(draw.min_p))) return {};
  }
  best.resize(count);
  std::erase_if(
      best, [&](const Weighed& w) { return static_cast<double>(w.units) * kUnit < static_cast<double>(draw.min_p); });
  return best;
}

// columns: in their order.
int32_t draw_from(std::span<const Weighed> columns, double uniform) {
  uint64_t total = 0;
  for (const Weighed& w : columns) total += w.units;
  auto left = static_cast<uint64_t>(uniform * static_cast<double>(total));
  for (const Weighed& w : columns) {
    if (left < w.units) return w.column;
    left -= w.units;
  }
  return -1;
}

// allowed: all columns of the mask, the best ones first.
int32_t drawn_from(std::span<const Ranked> allowed, const Pick& pick) {
  if (allowed.empty() || !std::isfinite(allowed[0].value)) return -1;
  const PickDraw& draw = *pick.draw;
  std::vector<Weighed> columns;
  for (const Ranked& r : allowed) columns.push_back({r.column, units_of(r.value, allowed[0].value, draw.temperature)});
  const size_t best = std::min(columns.size(), static_cast<size_t>(pick.best));
  if (draw.best_only) columns.resize(best);
  if (draw.cuts()) {
    uint64_t total = 0;
    for (const Weighed& w : columns) total += w.units;
    columns.resize(best);
    columns = cut_best(std::move(columns), draw, total);
  }
  std::ranges::sort(columns, {}, &Weighed::column);
  return draw_from(columns, draw.uniform);
}

}  // namespace

Picked::Picked(const Pick& pick, std::span<const std::byte> words) : columns(pick.columns) {
  assert(words.size() == pick.words() * sizeof(uint32_t));
  const auto count = pick.draw ? size_t{1} : static_cast<size_t>(pick.best);
  best = {reinterpret_cast<const int32_t*>(words.data()), count};
  const std::span numbers(reinterpret_cast<const float*>(words.data()) + count, count + columns.size());
  best_values = numbers.first(count);
  column_values = numbers.subspan(count);
  if (pick.draw) std::memcpy(&drawn, words.last(sizeof drawn).data(), sizeof drawn);
}

void pick(std::span<const float> x, const Pick& pick, std::span<uint32_t> to) {
  assert(to.size() == pick.words());
  std::vector<Ranked> allowed;
  for (size_t i = 0; pick.best > 0 && i < x.size(); ++i) {
    if (pick.mask.empty() || has_bit(pick.mask, i)) allowed.push_back({static_cast<int32_t>(i), x[i]});
  }
  const size_t count = pick.draw ? size_t{1} : static_cast<size_t>(pick.best), found = std::min(count, allowed.size());
  const auto sorted = static_cast<ptrdiff_t>(std::min(static_cast<size_t>(pick.best), allowed.size()));
  std::partial_sort(allowed.begin(), allowed.begin() + sorted, allowed.end(), ranks_before);
  for (size_t i = 0; i < count; ++i) {
    to[i] = i < found ? static_cast<uint32_t>(allowed[i].column) : ~0u;
    to[count + i] = i < found ? std::bit_cast<uint32_t>(allowed[i].value) : 0;
  }
  for (size_t i = 0; i < pick.columns.size(); ++i)
    to[2 * count + i] = std::bit_cast<uint32_t>(x[static_cast<size_t>(pick.columns[i])]);
  if (pick.draw) to[2] = static_cast<uint32_t>(drawn_from(allowed, pick));
}

}  // namespace quire
