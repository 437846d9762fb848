// How the CPU and a device share the layers of a model (EngineOptions::gpu_layers).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "engine/memory_plan.h"

namespace quire {

// How many of the last layers the device computes, all of them or fewer; 0: the machine has no device with memory of its own.
// options.gpu_layers is not kAutoGpuLayers if there is one. Throws Error: it is no such number, there is no device, the model
// cannot be cut there, or another option does not allow it.
int layers_of_device(const ModelFacts& facts, const EngineOptions& options, const Machine& machine);

// Completes plan.host, and sizes the cache, of which the CPU and the device each keep their layers' part: as many units and
// states as fit in both memories. caches: the CPU's layout and the device's. memory: what the device has left for its part.
// Throws Error: the CPU's part does not fit, or the cache of one sequence.
void plan_host(const ModelFacts& facts, const EngineOptions& options, const Machine& machine,
               std::span<const CacheLayout> caches, size_t memory, MemoryPlan& plan);

// The most layers that the device can have and that fit(); 0: none do.
int most_layers_of_device(const ModelConfig& config, const std::function<bool(int layers)>& fit);

}  // namespace quire
