// A device that has all layers of a model but for the experts of the first ones, which the CPU has
// (EngineOptions::cpu_moe_layers).
#pragma once

#include <functional>

#include "engine/memory_plan.h"

namespace quire {

// How many of the first layers have their experts on the CPU next to a device; 0: none. Throws Error: it is no such number.
// Throws OptionError: the model has no experts, there is no device, or another option does not allow it.
int layers_with_cpu_experts(const ModelFacts& facts, const EngineOptions& options, const Machine& machine);

// Whether a layer after these has experts.
bool device_has_experts(const ModelConfig& config, int cpu_moe_layers);

// Bytes that plan.cpu_moe_layers take from the device's weights to the host's.
size_t cpu_expert_bytes(const ModelFacts& facts, const MemoryPlan& plan);

// Completes plan.host. Throws Error: it does not fit.
void plan_cpu_experts(const ModelFacts& facts, const EngineOptions& options, const Machine& machine, MemoryPlan& plan);

// The fewest layers that fit(); 0: none do.
int fewest_layers_with_cpu_experts(const ModelFacts& facts, const std::function<bool(int layers)>& fit);

}  // namespace quire
