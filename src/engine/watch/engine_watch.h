// Lets other threads watch an engine: it publishes snapshots when somebody asks, and never waits for who reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cache/shared_pages.h"
#include "engine/loaded_model.h"
#include "engine/request_state.h"
#include "engine/roster.h"
#include "engine/scheduler.h"
#include "engine/step_builder.h"
#include "engine/watch/snapshot.h"
#include "engine/watch/step_history.h"
#include "engine/watch/triple_buffer.h"

namespace quire {

// ask() and latest() may be called from any thread, everything else from the engine's alone.
//
// The cost is bounded. Steps are noted always, in memory that does not grow. A snapshot is taken only if one was asked for
// since the last, at most once in kLeastInterval, and not before 200 times as long has passed as the last one took: that
// is at most half a percent of the time, however large the cache.
class EngineWatch {
 public:
  static constexpr double kLeastInterval = 0.05;  // seconds

  // The model must outlive it.
  explicit EngineWatch(const LoadedModel& model);

  // Asks for a new snapshot. If it is too early for one, the request is dropped: ask again later.
  void ask() { asked_.store(true, std::memory_order_relaxed); }
  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  // The newest snapshot; number 0 if there is none yet.
  EngineSnapshot latest() const {
    return buffer_.read([](const EngineSnapshot& snapshot) { return snapshot; });
  }

  // As StepHistory::add_parts().
  void add_parts(std::span<const Chunk> chunks, std::span<const Sampling> sampling) {
    history_.add_parts(chunks, sampling);
  }
  // bytes: that it read; 0: not known. logits: rows whose logits it computed.
  void end_step(Clock::time_point began, double seconds, int rows, size_t logits, double bytes);
  // Takes and publishes a snapshot, if it is wanted and not too early. Without memory for it, none.
  void publish(const Roster& roster, const SharedPages& shared, const EngineStats& stats);

 private:
  double since_start(Clock::time_point time) const { return seconds(time - start_); }
  SequenceSnapshot describe(const Sequence& s, bool runs) const;
  void take(const Roster& roster, const SharedPages& shared, EngineSnapshot& to) const;

  const Clock::time_point start_ = Clock::now();
  const double step_target_;
  double row_multiply_adds_ = 0, logits_multiply_adds_ = 0;  // of one row: in all linears but the last, and in the last
  StepHistory history_;
  TripleBuffer<EngineSnapshot> buffer_;
  uint64_t taken_ = 0;
  Clock::time_point next_{};  // when a snapshot may be taken again
  std::atomic<bool> asked_{false};
};

}  // namespace quire
