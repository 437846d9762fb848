// A limit on the memory of one piece of work, such as reading a request, whatever code allocates it.
//
// `new` counts, in programs that link base/counted_new.cc: `quire` and some tests. It does not throw, because destructors
// may allocate (those of Json do). Code that builds something as large as a client likes asks check_work() as it grows.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

namespace quire {

// Thrown where the work is beyond its limit. Any code that takes std::bad_alloc takes this.
class WorkingMemoryExceeded : public std::bad_alloc {
 public:
  const char* what() const noexcept override { return "the limit of working memory is reached"; }
};

// Used by one thread at a time.
class WorkingMemory {
 public:
  explicit WorkingMemory(size_t limit) : limit_(static_cast<int64_t>(std::min<size_t>(limit, INT64_MAX))) {}

  size_t limit() const { return static_cast<size_t>(limit_); }
  // Bytes allocated and not yet freed. Freeing memory that was allocated before the work began lowers it too.
  size_t held() const { return static_cast<size_t>(std::max<int64_t>(held_, 0)); }
  size_t most() const { return static_cast<size_t>(most_); }  // most that was held at a time
  bool exceeded() const { return exceeded_; }

  void add(size_t bytes) {
    held_ += static_cast<int64_t>(bytes);
    most_ = std::max(most_, held_);
  }
  void subtract(size_t bytes) { held_ -= static_cast<int64_t>(bytes); }

  // Throws WorkingMemoryExceeded if `more` bytes do not fit.
  void check(size_t more) {
    if (more <= INT64_MAX / 2 && held_ + static_cast<int64_t>(more) <= limit_) return;
    exceeded_ = true;
    throw WorkingMemoryExceeded();
  }

  // What the work is doing, for the message of one that ends here: "rendering the chat template". Never allocates.
  std::string_view doing() const { return {doing_, doing_size_}; }
  template <class... A>
  void note(fmt::format_string<A...> f, A&&... a) {
    doing_size_ = fmt::format_to_n(doing_, sizeof(doing_), f, std::forward<A>(a)...).out - doing_;
  }

 private:
  const int64_t limit_;
  int64_t held_ = 0, most_ = 0;
  bool exceeded_ = false;
  char doing_[160] = {};
  size_t doing_size_ = 0;
};

// Where this thread's allocations count; nullptr: nowhere. Set by WorkingIn.
extern constinit thread_local WorkingMemory* working_memory;

// While it lives, this thread's allocations count in `memory`, or with nullptr nowhere: for what stays and serves others.
class WorkingIn {
 public:
  explicit WorkingIn(WorkingMemory* memory) : before_(std::exchange(working_memory, memory)) {}
  ~WorkingIn() { working_memory = before_; }
  WorkingIn(const WorkingIn&) = delete;
  WorkingIn& operator=(const WorkingIn&) = delete;

 private:
  WorkingMemory* const before_;
};

// Throws WorkingMemoryExceeded if this thread's work has a limit, and `more` bytes do not fit.
inline void check_work(size_t more = 0) {
  if (working_memory != nullptr) working_memory->check(more);
}

// Before an element is appended.
template <class Vector>
void check_growth(const Vector& vector) {
  if (vector.size() == vector.capacity()) check_work(2 * vector.size() * sizeof(vector.front()));
}

// WorkingMemory::note() of this thread's work, if it has a limit.
template <class... A>
void note_work(fmt::format_string<A...> f, A&&... a) {
  if (working_memory != nullptr) working_memory->note(f, std::forward<A>(a)...);
}

}  // namespace quire
