// Ranks that are devices with memory of their own (MemoryPlan::devices).
#pragma once

#include "engine/memory_plan.h"

namespace quire {

// Throws Error: an option does not go together with several of them.
void check_device_ranks(const ModelFacts& facts, const EngineOptions& options);

}  // namespace quire
