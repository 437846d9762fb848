// Reports how far a loop over tiles of weights is.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>

#include "quire/types.h"

namespace quire {

using OnLoad = std::function<void(const LoadProgress&)>;  // must not throw; may be empty

// Threads of a team add what they have done. Only thread 0, the caller of the loop, reports, at most ten times a second.
class LoadMeter {
 public:
  LoadMeter(const OnLoad& report, LoadProgress::Stage stage, size_t total)
      : report_(report), stage_(stage), total_(total) {}

  // Returns what is done now, by all threads.
  size_t add(size_t bytes, int thread) {
    const size_t done = done_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (thread != 0 || !report_) return done;
    const auto now = Clock::now();
    if (now - reported_ < std::chrono::milliseconds(100)) return done;
    reported_ = now;
    report_({stage_, done, total_});
    return done;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const OnLoad& report_;
  const LoadProgress::Stage stage_;
  const size_t total_;
  std::atomic<size_t> done_{0};
  Clock::time_point reported_ = Clock::now();
};

}  // namespace quire
