// A device of whose layers the CPU has the experts, in the model's first layers (EngineOptions::cpu_moe_layers). The CPU may have
// whole layers as well (gpu_layers.h).
#pragma once

#include <functional>

#include "engine/memory_plan.h"

namespace quire {

// How many of the model's first layers have their experts on the CPU; 0: those of no layer of the device. Throws Error: it is no
// such number. Throws OptionError: the model has no experts, there is no device, or another option does not allow it.
int layers_with_cpu_experts(const ModelFacts& facts, const EngineOptions& options, const Machine& machine);

// Whether a layer after these has experts.
bool device_has_experts(const ModelConfig& config, int cpu_moe_layers);

// Bytes that plan.host_expert_layers() take from the device's weights to the host's.
size_t cpu_expert_bytes(const ModelFacts& facts, const MemoryPlan& plan);
// Bytes of the host with which it computes them.
size_t cpu_expert_activations(const ModelFacts& facts, const Machine& machine, const MemoryPlan& plan);

// Completes plan.host for a device that has all layers. Throws Error: it does not fit.
void plan_cpu_experts(const ModelFacts& facts, const EngineOptions& options, const Machine& machine, MemoryPlan& plan);

// The fewest layers that fit(); 0: none do.
int fewest_layers_with_cpu_experts(const ModelFacts& facts, const std::function<bool(int layers)>& fit);

}  // namespace quire
