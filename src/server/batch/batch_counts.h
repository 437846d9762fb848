// What the batches of a server are at: counted by the queue, shown in /metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

// States of batches (batch_status) that have not ended, and that have.
inline constexpr std::array<std::string_view, 4> kOpenBatchStates = {"validating", "in_progress", "finalizing",
                                                                     "cancelling"};
inline constexpr std::array<std::string_view, 4> kEndedBatchStates = {"completed", "failed", "expired", "cancelled"};

// Any thread may read.
struct BatchCounts {
  std::array<std::atomic<int64_t>, kOpenBatchStates.size()> open{};     // batches, now
  std::array<std::atomic<uint64_t>, kEndedBatchStates.size()> ended{};  // since the start
  // Requests of batches whose files have been checked.
  std::atomic<int64_t> waiting{0}, running{0};  // now
  std::atomic<uint64_t> completed{0},
      failed{0};  // since the start; failed: also those that the end of a batch has left
};

}  // namespace quire
