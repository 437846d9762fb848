// Hands the newest value from one thread to others, without waiting on the writer's side.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace quire {

// Three values: one is the writer's, one the readers', and the third, the newest, changes hands by an atomic exchange.
// So the writer never waits and never allocates a place, and readers never see a value that is being written.
template <class T>
class TripleBuffer {
 public:
  // One thread writes: it fills back() and publishes it. back() then holds an older value, whose memory can be reused.
  T& back() { return values_[writing_]; }
  void publish() {
    writing_ = middle_.exchange(static_cast<uint8_t>(writing_ | kNew), std::memory_order_acq_rel) & kIndex;
  }

  // Calls see(value) with the newest published value, or a default one before the first. Readers take turns.
  template <class See>
  auto read(See see) const {
    const std::lock_guard lock(mutex_);
    if ((middle_.load(std::memory_order_relaxed) & kNew) != 0)
      reading_ = middle_.exchange(reading_, std::memory_order_acq_rel) & kIndex;
    return see(values_[reading_]);
  }

 private:
  static constexpr uint8_t kIndex = 3, kNew = 4;

  std::array<T, 3> values_{};
  uint8_t writing_ = 0;                     // the writer's
  mutable std::atomic<uint8_t> middle_{1};  // and whether readers have not seen it
  mutable uint8_t reading_ = 2;             // guarded by mutex_
  mutable std::mutex mutex_;
};

}  // namespace quire
