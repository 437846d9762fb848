#include "engine/ranks/gpu_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/cache/cache_size.h"
#include "engine/ranks/cpu_experts.h"
#include "engine/step/local_executor.h"
#include "model/stages/cut_layers.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

// Whether the device can have so many layers, at least one.
bool can_have(const ModelConfig& config, int on_device) {
  const auto layers = static_cast<int>(config.layers.size());
  return on_device >= layers || can_cut_before(config, layers - on_device);
}

// Throws Error: the CPU and the device cannot share the layers with these options.
void check_shared_layers(const ModelFacts& facts, const EngineOptions& o) {
  const auto refuse = [&](std::string_view why) { throw unsupported("--gpu-layers {} {}", o.gpu_layers, why); };
  if (facts.drafters.named.model == DrafterKind::kEarlyExit)
    refuse(
        "cannot be combined with --speculative early-exit, whose layers and output would be in different places; use "
        "another drafter");
  if (!o.adapters.empty() || loads_adapters(o))
    refuse(
        "cannot be combined with adapters (--lora, --lora-memory, --max-loras); leave them out, or have the device "
        "compute all layers");
  if (!o.record.empty()) refuse("cannot be combined with --record, because a replay computes all layers in one place");
  if (o.executor_process) refuse("cannot be combined with --executor-process");
  if (can_have(facts.config, o.gpu_layers)) return;
  int fewer = o.gpu_layers, more = o.gpu_layers;
  while (fewer > 0 && !can_have(facts.config, fewer)) --fewer;
  while (!can_have(facts.config, more)) ++more;
  throw unsupported(
      "--gpu-layers {} would separate layers that read each other's keys and values, or more than the result of the "
      "layer before; use {}{}",
      o.gpu_layers, fewer > 0 ? fmt::format("{} or ", fewer) : "", more);
}

constexpr size_t mib(size_t bytes) { return (bytes + kMiB - 1) / kMiB; }

}  // namespace

int layers_of_device(const ModelFacts& facts, const EngineOptions& o, const Machine& machine) {
  if (o.gpu_layers < kAutoGpuLayers)
    throw invalid("--gpu-layers must be a number of layers, auto or all, not {}", o.gpu_layers);
  if (!machine.own_memory) {
    if (o.gpu_layers > 0 || o.gpu_layers == kAutoGpuLayers)
      throw invalid("--gpu-layers {} needs a GPU; add --device cuda, or leave it out",
                    o.gpu_layers > 0 ? std::to_string(o.gpu_layers) : "auto");
    return 0;
  }
  if (o.gpu_layers == 0)
    throw unsupported("--gpu-layers is 0, but the models of this process share a device; give at least 1");
  const auto layers = static_cast<int>(facts.config.layers.size());
  if (o.gpu_layers == kAllGpuLayers || o.gpu_layers >= layers) return layers;
  check_shared_layers(facts, o);
  return o.gpu_layers;
}

void plan_host(const ModelFacts& facts, const EngineOptions& o, const Machine& machine,
               std::span<const CacheLayout> caches, size_t memory, MemoryPlan& plan) {
  const ModelConfig& config = facts.config;
  const StagePlan& stage = plan.stages.front();
  HostPlan& host = *plan.host;
  host.budget = machine.host_memory;
  host.weights = facts.weights.bytes - facts.weights.matrix_bytes + stage.weights + cpu_expert_bytes(facts, plan);
  host.activations = LocalExecutor::memory_bytes(config, stage_limits(plan.limits, false),
                                                 CpuBackend::operations_bytes_with(machine.threads)) +
                     static_cast<size_t>(plan.limits.max_rows) * stage.sent_bytes +
                     cpu_expert_activations(facts, machine, plan) + sampling_bytes(machine.threads, config.vocab);
  host.other = plan.control_vectors + plan.page_store + plan.vocabulary + plan.requests + plan.unplanned;
  const size_t least = host.total() + caches[0].unit_bytes();
  if (least > host.budget)
    throw no_resource(
        "{} MiB of memory are available, but the CPU's layers of {} need at least {} MiB (weights {}, activations {}, "
        "other {}): raise --gpu-layers or --memory{}",
        host.budget / kMiB, o.model, mib(least), mib(host.weights), mib(host.activations), mib(host.other),
        plan.cpu_moe_layers > 0 ? ", or lower --n-cpu-moe" : "");

  const CacheLayout both = plan.layout.of_parts(caches);
  const struct {
    std::string_view whose;
    const CacheLayout& layout;
    size_t left, budget;
  } places[] = {{"CPU's", caches[0], host.budget - host.total(), host.budget},
                {"device's", caches[1], memory, plan.budget}};
  if (o.kv_cache_bytes > 0) {  // of both together
    plan.cache = size_cache(o, both, config.max_positions, o.kv_cache_bytes, plan.budget);
    for (const auto& place : places) {
      const size_t bytes = static_cast<size_t>(plan.cache.units) * place.layout.unit_bytes() +
                           static_cast<size_t>(plan.cache.states) * place.layout.state_bytes();
      if (bytes > place.left)
        throw no_resource(
            "--kv-cache-size is {} MiB, of which the {} layers have {}, but their memory leaves {} MiB for it; lower "
            "it",
            o.kv_cache_bytes / kMiB, place.whose, mib(bytes), place.left / kMiB);
    }
    return;
  }
  const auto size_part = [&](const auto& place) {
    try {
      return size_cache(o, place.layout, config.max_positions, place.left, place.budget);
    } catch (const Error& e) {
      throw Error(e.kind(), fmt::format("the {} layers: {}", place.whose, e.what()));
    }
  };
  const CacheSize cpu = size_part(places[0]), device = size_part(places[1]);
  plan.cache.units = std::min(cpu.units, device.units);
  plan.cache.states = std::min(cpu.states, device.states);
  plan.cache.max_model_len = std::min(cpu.max_model_len, device.max_model_len);
  plan.cache.bytes_per_sequence = both.bounded_bytes(plan.cache.max_model_len);
}

int most_layers_of_device(const ModelConfig& config, const std::function<bool(int layers)>& fit) {
  for (auto layers = static_cast<int>(config.layers.size()); layers > 0; --layers)
    if (can_have(config, layers) && fit(layers)) return layers;
  return 0;
}

}  // namespace quire
