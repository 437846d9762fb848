#include "engine/runtime.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/cpu.h"
#include "base/error.h"

namespace quire {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// --memory, or the available memory less a margin for the rest of the machine.
size_t memory_budget(const EngineOptions& options) {
  const size_t available = available_memory();
  if (options.memory_bytes == 0) return available - std::min(available, std::max(256 * kMiB, available / 20));
  if (options.memory_bytes > available)
    throw no_resource("--memory is {} MiB, but only {} MiB are free; lower it", options.memory_bytes / kMiB,
                      available / kMiB);
  return options.memory_bytes;
}

int checked_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    throw invalid("--threads must be between 0 (all cores) and {}, not {}", kMaxThreads, threads);
  return threads > 0 ? threads : usable_cores();
}

}  // namespace

size_t anonymous_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

Runtime::Runtime(const EngineOptions& options)
    : team(checked_threads(options.threads)),
      kernels(choose_kernels(options.kernels)),
      memory(memory_budget(options)) {}

}  // namespace quire
