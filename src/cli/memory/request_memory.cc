#include "cli/memory/request_memory.h"

#include <algorithm>

#include "base/cpu.h"
#include "engine/memory_budget.h"

namespace quire {
namespace {

constexpr size_t kLeastForBatches = 32 * kMiB;

}  // namespace

void reserve_request_memory(size_t request_memory, ServerOptions& server, EngineOptions& engine) {
  // The largest body must fit next to the share that is kept for small ones.
  server.max_bodies_bytes = std::max(server.max_bodies_bytes, server.max_body_bytes / 4 * 5);
  // What the flags about bodies and replies do not count: reading requests, which may take half of it, or an eighth beside
  // another one; their grammars, which may take a quarter; connections and logs.
  const size_t memory = engine.memory_bytes > 0 ? engine.memory_bytes : available_memory();
  if (request_memory == 0) request_memory = std::clamp(memory / 4, 64 * kMiB, 512 * kMiB);
  server.large_work_bytes = request_memory / 2;
  server.small_work_bytes = request_memory / 8;
  server.max_extra_bytes = std::min(server.max_extra_bytes, static_cast<int64_t>(server.large_work_bytes / 6));
  engine.constraint_bytes = request_memory / 4;
  // Requests of batches: the largest body fits into half of it, and their answers have the other half.
  server.batch_bytes = server.files_dir.empty() ? 0 : std::max(kLeastForBatches, 2 * server.max_body_bytes);
  engine.reserved_bytes = server.max_bodies_bytes + server.max_replies_bytes + request_memory + server.batch_bytes;
}

}  // namespace quire
