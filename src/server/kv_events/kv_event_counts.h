// What became of KV events: counted by the publisher, shown in /metrics.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

// Counted since the start. Any thread may read.
struct KvEventCounts {
  std::atomic<uint64_t> batches{0};  // published
  std::atomic<uint64_t> lost{0};     // times that events were dropped, and subscribers told that all pages are gone
};

}  // namespace quire
