#include "quantize/allocation/knapsack.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace quire {
namespace {

// The cheapest item of a list; of equal ones that of the least loss.
size_t cheapest(const std::vector<KnapsackItem>& list) {
  const auto less = [](const KnapsackItem& a, const KnapsackItem& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.loss < b.loss;
  };
  return static_cast<size_t>(std::ranges::min_element(list, less) - list.begin());
}

// Exchanges the item whose exchange saves most, as long as one fits into what is left of the budget.
void spend_rest(std::span<const std::vector<KnapsackItem>> lists, uint64_t rest, std::vector<size_t>& chosen) {
  while (true) {
    size_t best_list = lists.size(), best_item = 0;
    double most = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
      const KnapsackItem& now = lists[i][chosen[i]];
      for (size_t j = 0; j < lists[i].size(); ++j) {
        const KnapsackItem& other = lists[i][j];
        if (other.cost > now.cost + rest || now.loss - other.loss <= most) continue;
        most = now.loss - other.loss;
        best_list = i;
        best_item = j;
      }
    }
    if (best_list == lists.size()) return;
    rest = rest + lists[best_list][chosen[best_list]].cost - lists[best_list][best_item].cost;
    chosen[best_list] = best_item;
  }
}

}  // namespace

std::optional<std::vector<size_t>> choose_within(std::span<const std::vector<KnapsackItem>> lists, uint64_t budget) {
  std::vector<size_t> chosen;
  uint64_t least = 0;
  for (const std::vector<KnapsackItem>& list : lists) {
    assert(!list.empty());
    chosen.push_back(cheapest(list));
    least += list[chosen.back()].cost;
  }
  if (least > budget) return std::nullopt;
  const std::vector<size_t> lowest = chosen;
  const uint64_t unit = std::max<uint64_t>(1, (budget - least + kKnapsackUnits - 1) / kKnapsackUnits);
  const auto units = static_cast<size_t>((budget - least) / unit);
  // losses[u]: the least loss of the lists so far within u units beyond their cheapest items.
  std::vector<double> losses(units + 1, 0), next(units + 1);
  std::vector<std::vector<uint32_t>> items(lists.size(), std::vector<uint32_t>(units + 1));
  const auto units_of = [&](size_t list, size_t item) {
    return static_cast<size_t>((lists[list][item].cost - lists[list][lowest[list]].cost + unit - 1) / unit);
  };
  for (size_t i = 0; i < lists.size(); ++i) {
    std::ranges::fill(next, std::numeric_limits<double>::infinity());
    for (size_t j = 0; j < lists[i].size(); ++j) {
      for (size_t u = units_of(i, j), before = 0; u <= units; ++u, ++before) {
        const double loss = losses[before] + lists[i][j].loss;
        if (loss >= next[u]) continue;
        next[u] = loss;
        items[i][u] = static_cast<uint32_t>(j);
      }
    }
    std::swap(losses, next);
  }
  size_t u = units;
  uint64_t cost = 0;
  for (size_t i = lists.size(); i-- > 0;) {
    chosen[i] = items[i][u];
    u -= units_of(i, chosen[i]);
    cost += lists[i][chosen[i]].cost;
  }
  assert(cost <= budget);
  spend_rest(lists, budget - cost, chosen);
  return chosen;
}

}  // namespace quire
