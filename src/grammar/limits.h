// Bounds of a grammar: what a client may ask for, and what its lazily built automaton may use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

namespace quire::grammar {

// What several grammars and their automata hold together. Thread-safe.
class SharedMemory {
 public:
  explicit SharedMemory(size_t limit) : limit_(limit) {}
  size_t limit() const { return limit_; }
  bool full() const { return used_.load(std::memory_order_relaxed) > limit_; }
  void add(size_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void subtract(size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// The part of one grammar or automaton, as far as it has been reported.
class SharedPart {
 public:
  explicit SharedPart(std::shared_ptr<SharedMemory> all) : all_(std::move(all)) {}
  SharedPart(const SharedPart&) = delete;
  SharedPart& operator=(const SharedPart&) = delete;
  ~SharedPart() { report(0); }

  void report(size_t bytes) {
    if (all_ == nullptr) return;
    all_->add(bytes);
    all_->subtract(std::exchange(bytes_, bytes));
  }
  // The memory is used up, and this part is among the large ones.
  bool too_large() const { return all_ != nullptr && all_->full() && bytes_ > all_->limit() / 32; }

 private:
  const std::shared_ptr<SharedMemory> all_;  // null: nothing is shared
  size_t bytes_ = 0;
};

// Steps are counted, not timed, so that a grammar is refused on every machine or on none. A step takes about 20 to 100 ns.
struct Limits {
  size_t bytes = size_t{1} << 20;             // size of a schema, regex, choice list or grammar
  int depth = 100;                            // nesting of groups, schemas and rules
  size_t nodes = 200'000;                     // in the compiled grammar and its regexes
  uint64_t compile_steps = 500'000;           // for one compilation
  uint64_t mask_steps = 5'000'000;            // for one fill_mask or advance
  size_t cache_bytes = size_t{32} << 20;      // for the automaton and its masks; beyond it they are built anew
  std::stop_token stop = {};                  // ends a compilation early
  std::shared_ptr<SharedMemory> shared = {};  // shared with other grammars; null: each has cache_bytes for itself
};

// What texts of a schema are for. Those to write are spelled as strict readers want it: an integer is 5, never 5.0 or 5e0.
// A text to check may have come from elsewhere.
enum class Texts : uint8_t { kToWrite, kToCheck };

}  // namespace quire::grammar
