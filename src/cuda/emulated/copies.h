// Asynchronous copies of a thread to shared memory. They are done when the thread waits for them, as late as is allowed, so that
// a missing wait shows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::cuda::emulated {

struct AsyncCopy {
  std::byte* to;
  uint32_t bytes;
  uint32_t group;
  std::array<std::byte, 16> data;
};

class AsyncCopies {
 public:
  void reset() {
    copies_.clear();
    group_ = 0;
  }
  void start(std::byte* to, const std::byte* data, size_t bytes);  // data == nullptr: zeros
  void commit() { ++group_; }
  // Calls done(copy) for each copy of all committed groups but the last `groups`, in order.
  template <class Done>
  void wait(int groups, Done&& done) {
    size_t finished = 0;
    while (finished < copies_.size() && copies_[finished].group + static_cast<uint32_t>(groups) < group_)
      done(copies_[finished++]);
    copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(finished));
  }

 private:
  std::vector<AsyncCopy> copies_;
  uint32_t group_ = 0;  // of the copies that start now
};

}  // namespace quire::cuda::emulated
