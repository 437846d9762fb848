#include "trace/trace_writer.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/files/write_all.h"
#include "base/signals.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr size_t kLastEventBytes = 512;    // room that is kept for the last event
constexpr size_t kWriteBytes = 256 << 10;  // text that is collected before it is written
// The writer wakes so often at most, unless half of the buffer is full: each time costs the engine's threads a switch.
constexpr std::chrono::milliseconds kPause{200};

int open_trace(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a reader. The file is emptied once it is known to be one.
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (file < 0) throw no_resource("cannot write the trace {}: {}", quote(path), std::strerror(errno));
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(file);
    throw invalid("cannot write the trace {}: it is not a regular file; name a new one with --trace-out", quote(path));
  }
  if (::ftruncate(file, 0) != 0) {
    const int reason = errno;
    ::close(file);
    throw no_resource("cannot write the trace {}: {}", quote(path), std::strerror(reason));
  }
  return file;
}

}  // namespace

TraceWriter::TraceWriter(TraceFileOptions options, const TraceHeader& header,
                         std::span<const std::string_view> operations)
    : options_(std::move(options)), operations_(operations) {
  const size_t each = StepTrace::memory_bytes(options_.most_operations, options_.most_answers);
  steps_.resize(std::clamp<size_t>(options_.buffer_bytes / each, 4, 4096));
  for (StepTrace& step : steps_) step.reserve(options_.most_operations, options_.most_answers);
  free_.reserve(steps_.size());
  full_.reserve(steps_.size());
  for (StepTrace& step : steps_) free_.push_back(&step);
  current_ = free_.back();
  free_.pop_back();
  append_trace_header(header, text_);
  text_.reserve(2 * kWriteBytes);
  file_ = open_trace(options_.path);
  written_ = text_.size();
  if (const int reason = write_all(file_, text_); reason != 0) {
    ::close(file_);
    throw no_resource("cannot write the trace {}: {}", quote(options_.path), std::strerror(reason));
  }
  text_.clear();
  try {
    const BlockSignals leave_signals_to_the_caller;
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::close(file_);
    throw;
  }
}

TraceWriter::~TraceWriter() {
  {
    const std::lock_guard lock(mutex_);
    full_.push_back(current_);
    lost_steps_ += skipped_;
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  ::close(file_);
}

void TraceWriter::hand_over() {
  if (ended()) return current_->clear();
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      skipped_ += current_->number > 0;
      return current_->clear_step();
    }
    lost_steps_ += std::exchange(skipped_, 0);
    full_.push_back(std::exchange(current_, free_.back()));
    free_.pop_back();
    wake = full_.size() == 1 || full_.size() == steps_.size() / 2;
  }
  if (wake) wake_.notify_one();
}

void TraceWriter::run() {
  std::vector<StepTrace*> taken;
  taken.reserve(steps_.size());
  for (bool stop = false; !stop;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !full_.empty(); });
      wake_.wait_for(lock, kPause, [&] { return stopping_ || full_.size() >= steps_.size() / 2; });
      taken.swap(full_);
      losses_.steps = lost_steps_;
      stop = stopping_;
    }
    for (StepTrace* step : taken) {
      try {
        take(*step);
      } catch (const std::bad_alloc&) {
        ++losses_.answers;
      }
      step->clear();
      const std::lock_guard lock(mutex_);
      free_.push_back(step);
    }
    taken.clear();
    write(text_);
    text_.clear();
  }
  finish(TraceEnd::kClosed);
}

// Adds a step to the text, and writes it once there is enough.
void TraceWriter::take(const StepTrace& step) {
  losses_.operations += step.lost_operations;
  losses_.answers += step.lost_answers;
  if (ended()) return;
  const size_t before = text_.size();
  append_step_events(step, operations_, text_);
  if (written_ + text_.size() + kLastEventBytes > options_.most_bytes) {
    text_.resize(before);  // whole steps only
    return finish(TraceEnd::kLimit);
  }
  written_steps_ += step.number > 0;
  if (text_.size() < kWriteBytes) return;
  write(text_);
  text_.clear();
}

void TraceWriter::write(std::string_view text) {
  if (ended()) return;
  written_ += text.size();
  const int reason = write_all(file_, text);
  if (reason == 0) return;
  spdlog::warn("the trace {} ends here: it cannot be written: {}", quote(options_.path), std::strerror(reason));
  ended_ = true;
}

void TraceWriter::finish(TraceEnd end) {
  if (ended()) return;
  append_trace_end(end, written_steps_, losses_, text_);
  write(text_);
  text_.clear();
  if (end == TraceEnd::kLimit)
    spdlog::warn("the trace {} has reached its limit of {} bytes (--trace-limit) and ends here", quote(options_.path),
                 options_.most_bytes);
  ended_ = true;
}

}  // namespace quire
