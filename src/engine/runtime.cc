#include "engine/runtime.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/device.h"
#include "model/families.h"

namespace quire {
namespace {

// --memory, or the available memory less a margin for the rest of the machine.
size_t memory_budget(const EngineOptions& options) {
  const size_t available = available_memory();
  if (options.memory_bytes == 0) return available - std::min(available, std::max(256 * kMiB, available / 20));
  if (options.memory_bytes > available)
    throw no_resource("--memory is {} MiB, but only {} MiB are free; lower it", options.memory_bytes / kMiB,
                      available / kMiB);
  return options.memory_bytes;
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
  return {.memory = memory_budget(options),
          .threads = checked_threads(options.threads),
          .activations = CpuBackend::default_activations_of(options.kernels)};
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
      device(open_device(cpu)),
      memory(memory_budget(options)) {}

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
