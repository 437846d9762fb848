// Writes a trace while it is made, from a thread of its own: whoever makes it never waits for the disk.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "trace/event_text.h"
#include "trace/step_trace.h"

namespace quire {

// The least limit of a file: the first and last events, and some steps.
inline constexpr size_t kLeastTraceBytes = size_t{64} << 10;

struct TraceFileOptions {
  std::string path;
  size_t most_bytes = size_t{256} << 20;              // of the file, at least kLeastTraceBytes
  size_t buffer_bytes = size_t{8} << 20;              // memory for steps that are not written yet
  size_t most_operations = 1024, most_answers = 256;  // of one step; more are lost, and counted
};

// A step is handed over complete. If the writer has fallen behind, its times are lost and counted, and what happened to
// answers stays for the next step. The file always ends between two events, unless the process is killed. The members are
// for one thread; the destructor writes what is left.
class TraceWriter {
 public:
  // Replaces the file. operations: names, which must outlive the writer. Throws Error if the file cannot be written, or is
  // no regular file.
  TraceWriter(TraceFileOptions options, const TraceHeader& header, std::span<const std::string_view> operations);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The step in progress.
  StepTrace& current() { return *current_; }
  // Hands it over, and begins an empty one.
  void hand_over();
  // Nothing more is written: the limit is reached, or the disk is full. The steps may be left empty from now on.
  bool ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  void run();
  void take(const StepTrace& step);
  void write(std::string_view text);
  void finish(TraceEnd end);

  const TraceFileOptions options_;
  const std::span<const std::string_view> operations_;
  std::vector<StepTrace> steps_;
  StepTrace* current_;
  uint64_t skipped_ = 0;  // steps lost since the last one that was handed over

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<StepTrace*> free_, full_;  // full_: in their order
  uint64_t lost_steps_ = 0;
  bool stopping_ = false;

  // Of the writer's thread, after the constructor.
  int file_ = -1;
  std::string text_;
  size_t written_ = 0;
  uint64_t written_steps_ = 0;
  TraceLosses losses_;
  std::atomic<bool> ended_{false};

  std::thread thread_;
};

}  // namespace quire
