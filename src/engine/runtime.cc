#include "engine/runtime.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/device.h"
#include "engine/ranks/placement.h"
#include "model/families.h"
#include "ops/process_group.h"

namespace quire {
namespace {

// Less a margin for the rest of the machine.
size_t usable_memory(size_t available) { return available - std::min(available, std::max(256 * kMiB, available / 20)); }

// Of the device that has the least.
std::optional<size_t> own_memory(std::span<Backend* const> devices) {
  std::optional<size_t> least;
  for (const Backend* device : devices)
    if (const auto own = device->own_memory()) least = std::min(least.value_or(*own), *own);
  return least;
}

// --memory, or the usable memory; of devices with memory of their own the part that --gpu-memory-utilization says.
size_t memory_budget(const EngineOptions& options, std::span<Backend* const> devices) {
  if (const auto own = own_memory(devices)) {
    const double part = options.gpu_memory_utilization;
    if (!(part > 0 && part <= 1)) throw invalid("--gpu-memory-utilization must be above 0 and at most 1, not {}", part);
    const auto budget = static_cast<size_t>(static_cast<double>(*own) * part);
    return options.memory_bytes > 0 ? std::min(options.memory_bytes, budget) : budget;
  }
  const size_t available =
      available_memory() / (options.processes ? static_cast<size_t>(options.processes->places().on_host) : 1);
  if (options.memory_bytes == 0) return usable_memory(available);
  if (options.memory_bytes > available)
    throw no_resource("--memory is {} MiB, but only {} MiB are free; lower it", options.memory_bytes / kMiB,
                      available / kMiB);
  return options.memory_bytes;
}

// Memory of the host for what a device does not have: --memory, or what is free less the margin.
size_t host_memory_budget(const EngineOptions& options, std::span<Backend* const> devices) {
  if (!own_memory(devices)) return 0;
  const size_t free = usable_memory(available_memory());
  return options.memory_bytes > 0 ? std::min(options.memory_bytes, free) : free;
}

// Of the first rank. --gpu-layers 0 leaves the device alone.
std::unique_ptr<Backend> device_of(const EngineOptions& options, CpuBackend& cpu) {
  if (options.processes && uses_device(options))
    throw unsupported("processes (--ranks mpi) compute on the processor only; leave out --device {}", options.device);
  if (options.gpu_layers != 0) return open_device(device_names(options)[0], cpu);
  if (options.device != "cpu")
    spdlog::warn("--gpu-layers 0: the CPU computes all layers; --device {} is not used", options.device);
  return nullptr;
}

std::vector<std::unique_ptr<Backend>> devices_of_other_ranks(const EngineOptions& options, CpuBackend& cpu) {
  std::vector<std::unique_ptr<Backend>> devices;
  if (!uses_device(options)) return devices;
  const std::vector<std::string> names = device_names(options);
  for (const std::string& name : std::span(names).subspan(1)) {
    try {
      devices.push_back(open_device(name, cpu));
    } catch (const Error& e) {
      throw Error(e.kind(),
                  fmt::format("--tensor-parallel-size {} needs {} devices: {}", names.size(), names.size(), e.what()));
    }
  }
  return devices;
}

// Increase this when what a kernel computes or the layout of a page changes, to invalidate stored pages.
constexpr int kNumerics = 4;

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw invalid("--threads must be between 0 (all cores) and {}, not {}", kMaxThreads, threads);
  return threads > 0 ? threads : usable_cores();
}

}  // namespace

Machine this_machine(const EngineOptions& options) {
  if (uses_device(options)) {
    const auto runtime = std::make_shared<Runtime>(options);
    Machine machine = runtime->machine(runtime->memory.bytes());
    machine.operations_bytes = [runtime](const OperationLimits& limits) {  // keeps the backend that it asks
      return runtime->backend().operations_bytes(limits);
    };
    return machine;
  }
  return {.memory = memory_budget(options, {}),
          .threads = checked_threads(options.threads),
          .activations = CpuBackend::default_activations_of(options.kernels),
          .one_rank = options.processes != nullptr,
          .rank = options.processes ? options.processes->rank() : 0};
}

size_t anonymous_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

Runtime::Runtime(const EngineOptions& options)
    : team(checked_threads(options.threads)),
      tuning(),
      cpu(options.kernels, team, &tuning),
      device(device_of(options, cpu)),
      more_devices(devices_of_other_ranks(options, cpu)),
      memory(memory_budget(options, devices())),
      host_memory(host_memory_budget(options, devices())),
      one_rank(options.processes != nullptr),
      rank(options.processes ? options.processes->rank() : 0) {
  if (!device && !options.processes && options.tensor_parallel_size == 1 && options.pipeline_parallel_size == 1)
    suggest_ranks(options.numa);
}

std::vector<Backend*> Runtime::devices() const {
  std::vector<Backend*> all;
  if (device) all.push_back(device.get());
  for (const auto& one : more_devices) all.push_back(one.get());
  return all;
}

Machine Runtime::machine(size_t bytes) {
  Backend& used = backend();
  return {.memory = bytes,
          .threads = team.size(),
          .activations = used.default_activations(),
          .operations_bytes = [&used](const OperationLimits& limits) { return used.operations_bytes(limits); },
          .reads_experts = used.reads_experts(),
          .own_memory = used.own_memory().has_value(),
          .one_rank = one_rank,
          .rank = rank,
          .host_memory = host_memory.bytes(),
          .host_activations = cpu.default_activations()};
}

Model read_model(const Checkpoint& checkpoint) {
  return {.config = read_model_config(checkpoint), .text = load_model_text(checkpoint), .weights = {}};
}

std::string model_identity(const Checkpoint& checkpoint, const ModelConfig& config, std::string_view activations) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  for (const TensorView& tensor : checkpoint.tensors()) {
    XXH3_128bits_update(state, tensor.name.data(), tensor.name.size());
    XXH3_128bits_update(state, tensor.bytes.data(), tensor.bytes.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x} numerics {} {} activations {}", hash.high64, hash.low64, kNumerics,
                     config_identity(config), activations);
}

}  // namespace quire
