// The bounds of one rendering: steps, live memory, depth. A hostile template ends in an Error.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/working_memory.h"

namespace quire::jinja {

inline constexpr int kMaxNesting = 150;          // nested brackets and blocks in the source
inline constexpr int kMaxExpressionDepth = 400;  // depth of the syntax tree: `a + b + …` is as deep as it is long
inline constexpr int kMaxCallDepth = 800;        // nested evaluations; at most 3 KiB of stack each (asan): 2.4 of 8 MiB
inline constexpr int kMaxValueDepth = 300;       // nested lists and dicts
inline constexpr size_t kMaxSource = size_t{1} << 20;

class Meter {
 public:
  // Twenty million steps take about a second; real templates take about fifty per message.
  explicit Meter(size_t input_bytes)
      : steps_left_(20'000'000 + input_bytes / 8), memory_left_((64u << 20) + 32 * input_bytes) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(size_t n = 1) {
    if (n > steps_left_) fail_steps();
    steps_left_ -= n;
  }
  void take(size_t bytes) {
    if (bytes > memory_left_) fail_memory();
    check_work(bytes);
    memory_left_ -= bytes;
  }
  void give(size_t bytes) { memory_left_ += bytes; }

 private:
  [[noreturn]] static void fail_steps();
  [[noreturn]] static void fail_memory();
  uint64_t steps_left_;
  size_t memory_left_;
};

// Memory charged to a meter until destruction. The meter must outlive it.
class Charge {
 public:
  Charge() = default;
  Charge(Meter& meter, size_t bytes) : meter_(&meter), bytes_(bytes) { meter.take(bytes); }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (meter_ != nullptr) meter_->give(bytes_);
  }
  void grow(size_t bytes) {
    if (meter_ == nullptr) return;
    meter_->take(bytes);
    bytes_ += bytes;
  }

 private:
  Meter* meter_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quire::jinja
