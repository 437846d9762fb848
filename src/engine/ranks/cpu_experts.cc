#include "engine/ranks/cpu_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <variant>

#include "base/error.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/offload/host_experts.h"

namespace quire {

int layers_with_cpu_experts(const ModelFacts& facts, const EngineOptions& o, const Machine& machine) {
  if (o.cpu_moe_layers == 0) return 0;
  if (o.cpu_moe_layers < kAllCpuMoeLayers)
    throw invalid("--n-cpu-moe must be a number of layers, not {}", o.cpu_moe_layers);
  const std::string flag =
      o.cpu_moe_layers == kAllCpuMoeLayers ? "--cpu-moe" : fmt::format("--n-cpu-moe {}", o.cpu_moe_layers);
  const auto refuse = [&](const std::string& why) { throw OptionError(ErrorKind::kUnsupported, flag + " " + why); };
  const auto layers = static_cast<int>(facts.config.layers.size());
  if (facts.weights.experts.experts == 0)
    refuse(fmt::format("is for mixtures of experts, but {} has no experts; leave it out", o.model));
  if (o.gpu_layers == 0) return 0;  // the CPU has all layers
  if (!machine.own_memory) refuse("needs a GPU; add --device cuda, or leave it out");
  if (!o.record.empty()) refuse("cannot be combined with --record, because a replay computes all in one place");
  if (o.executor_process) refuse("cannot be combined with --executor-process");
  const int with_experts = o.cpu_moe_layers == kAllCpuMoeLayers ? layers : std::min(o.cpu_moe_layers, layers);
  const int on_cpu = o.gpu_layers > 0 ? std::max(layers - o.gpu_layers, 0) : 0;
  return with_experts > on_cpu ? with_experts : 0;
}

bool device_has_experts(const ModelConfig& config, int cpu_moe_layers) {
  return std::any_of(config.layers.begin() + cpu_moe_layers, config.layers.end(),
                     [](const LayerSpec& layer) { return std::holds_alternative<Moe>(layer.ffn); });
}

size_t cpu_expert_bytes(const ModelFacts& facts, const MemoryPlan& plan) {
  const auto& bytes = facts.weights.expert_bytes;
  const LayerRange layers = plan.host_expert_layers();
  return std::accumulate(bytes.begin() + layers.begin, bytes.begin() + layers.end, size_t{0});
}

size_t cpu_expert_activations(const ModelFacts& facts, const Machine& machine, const MemoryPlan& plan) {
  if (plan.cpu_moe_layers == 0) return 0;
  return HostExpertsBackend::host_bytes(operation_limits(facts.config, plan.limits),
                                        CpuBackend::operations_bytes_with(machine.threads));
}

void plan_cpu_experts(const ModelFacts& facts, const EngineOptions& o, const Machine& machine, MemoryPlan& plan) {
  HostPlan& host = *plan.host;
  host.budget = machine.host_memory;
  host.weights = cpu_expert_bytes(facts, plan);
  host.activations = cpu_expert_activations(facts, machine, plan) + sampling_bytes(machine.threads, facts.config.vocab);
  host.other = plan.page_store + plan.vocabulary + plan.requests + plan.unplanned;
  if (host.total() <= host.budget) return;
  const auto mib = [](size_t bytes) { return (bytes + kMiB - 1) / kMiB; };
  throw no_resource(
      "{} MiB of memory are available on the host, but the experts of {} layers of {} need {} MiB there (weights {}, "
      "activations {}, other {}): lower --n-cpu-moe, or raise --memory",
      host.budget / kMiB, plan.cpu_moe_layers, o.model, mib(host.total()), mib(host.weights), mib(host.activations),
      mib(host.other));
}

int fewest_layers_with_cpu_experts(const ModelFacts& facts, const std::function<bool(int layers)>& fit) {
  const auto& bytes = facts.weights.expert_bytes;
  for (size_t layer = 0; layer < bytes.size(); ++layer)
    if (const auto layers = static_cast<int>(layer) + 1; bytes[layer] > 0 && fit(layers)) return layers;
  return 0;
}

}  // namespace quire
