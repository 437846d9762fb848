// What became of the spans of requests: counted by the exporter, shown in /metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

// What became of spans.
enum class SpanFate : uint8_t {
  kExported,
  kQueueFull,    // too many waited for the collector
  kRefused,      // the collector did not want it
  kUnreachable,  // it did not answer, several times
};
inline constexpr std::array<std::string_view, 4> kSpanFateNames = {"exported", "queue_full", "refused", "unreachable"};

// Counted since the start. Any thread may read.
struct SpanCounts {
  std::array<std::atomic<uint64_t>, kSpanFateNames.size()> by_fate{};

  void add(SpanFate fate, uint64_t spans) { by_fate[static_cast<size_t>(fate)] += spans; }
  uint64_t of(SpanFate fate) const { return by_fate[static_cast<size_t>(fate)]; }
};

}  // namespace quire
