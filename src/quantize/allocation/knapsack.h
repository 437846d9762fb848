// One choice from each of several lists, so that the sum of losses is smallest and the sum of costs is within a budget: the
// multiple-choice knapsack problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quire {

struct KnapsackItem {
  uint64_t cost = 0;
  double loss = 0;  // finite, not negative
};

// The index of the item chosen from each list; nullopt if even the cheapest items cost more than the budget. Lists are not
// empty. Dynamic programming over the budget (Kellerer, Pferschy and Pisinger, "Knapsack Problems", 2004, section 11.5) in
// at most kKnapsackUnits units: exact if the budget beyond the cheapest items is no larger than that. Otherwise costs are
// rounded up to units, which leaves less than (lists / kKnapsackUnits) of the budget unused, and then single items are
// exchanged for better ones while one fits. Time: items * kKnapsackUnits; memory: 4 bytes * kKnapsackUnits for each list.
inline constexpr size_t kKnapsackUnits = size_t{1} << 16;
std::optional<std::vector<size_t>> choose_within(std::span<const std::vector<KnapsackItem>> lists, uint64_t budget);

}  // namespace quire
