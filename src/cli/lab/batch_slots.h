// Slots of a batch: how schedulers fill them, counted in steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cli/figure/charts.h"
#include "cli/lab/stepped_run.h"

namespace quire {

// What answers take that all wait from the beginning. An answer of n tokens occupies a slot for n steps.
struct BatchSteps {
  int steps = 0;
  int64_t used = 0;  // slots, added up over the steps
};

// Static batching: the next `slots` answers begin when all before them have ended, so a batch takes as long as its longest
// answer. lengths: in the order of arrival, each at least 1.
BatchSteps static_steps(std::span<const int> lengths, int slots);
// Continuous batching: an answer begins in the step after another has ended.
BatchSteps continuous_steps(std::span<const int> lengths, int slots);

// The steps of a run in terms of slots.
BatchSteps count_slots(const SteppedRun& run);
// Who occupied which slot: a sequence takes the lowest that is free, from its first step to its last.
std::vector<SlotUse> occupy_slots(const SteppedRun& run);

}  // namespace quire
