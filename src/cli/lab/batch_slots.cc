#include "cli/lab/batch_slots.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace quire {
namespace {

int64_t sum_of(std::span<const int> lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

}  // namespace

BatchSteps static_steps(std::span<const int> lengths, int slots) {
  BatchSteps result{.steps = 0, .used = sum_of(lengths)};
  for (size_t i = 0; i < lengths.size(); i += static_cast<size_t>(slots)) {
    const auto batch = lengths.subspan(i, std::min(static_cast<size_t>(slots), lengths.size() - i));
    result.steps += *std::ranges::max_element(batch);
  }
  return result;
}

BatchSteps continuous_steps(std::span<const int> lengths, int slots) {
  std::vector<int> free_at(static_cast<size_t>(slots), 0);  // by slot: when its answer has ended
  for (const int length : lengths) *std::ranges::min_element(free_at) += length;
  return {.steps = *std::ranges::max_element(free_at), .used = sum_of(lengths)};
}

BatchSteps count_slots(const SteppedRun& run) {
  BatchSteps result{.steps = static_cast<int>(run.steps.size()), .used = 0};
  for (const SteppedRun::Step& step : run.steps) result.used += static_cast<int64_t>(step.parts.size());
  return result;
}

std::vector<SlotUse> occupy_slots(const SteppedRun& run) {
  std::map<uint64_t, size_t> seen;  // index in `uses`, by sequence
  std::vector<SlotUse> uses;
  for (size_t i = 0; i < run.steps.size(); ++i) {
    for (const StepPart& part : run.steps[i].parts) {
      const auto [found, is_new] = seen.emplace(part.sequence, uses.size());
      if (is_new) uses.push_back({.slot = -1, .user = uses.size(), .begin = static_cast<int>(i)});
      uses[found->second].end = static_cast<int>(i) + 1;
    }
  }
  std::vector<int> free_at;  // by slot
  for (SlotUse& use : uses) {
    const auto slot = std::ranges::find_if(free_at, [&](int end) { return end <= use.begin; });
    use.slot = static_cast<int>(slot - free_at.begin());
    if (slot == free_at.end()) free_at.push_back(0);
    free_at[static_cast<size_t>(use.slot)] = use.end;
  }
  return uses;
}

}  // namespace quire
