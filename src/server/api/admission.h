// What may be under way at the same time: answers, and the bytes of requests' bodies.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace quire {

// What runs and a bounded queue behind it. Thread-safe.
class Admission {
 public:
  explicit Admission(int capacity) : capacity_(capacity) {}

  // A place for `answers` more. One that needs more than half of the places gets in, whatever it needs, while half are
  // free: otherwise any other client could keep it out for ever.
  bool enter(int answers) {
    const std::lock_guard lock(mutex_);
    const bool large = answers > capacity_ / 2;
    if (large ? inside_ > capacity_ / 2 : inside_ > capacity_ - answers) return false;
    inside_ += answers;
    return true;
  }
  void leave(int answers) {
    const std::lock_guard lock(mutex_);
    inside_ -= answers;
  }
  int inside() const {
    const std::lock_guard lock(mutex_);
    return inside_;
  }

 private:
  mutable std::mutex mutex_;
  int capacity_, inside_ = 0;
};

// Places of answers that have been let in: given back one by one as they end, and what is left with this, so that no
// failure on the way can lose one.
class Places {
 public:
  Places() = default;
  Places(std::shared_ptr<Admission> admission, int entered) : admission_(std::move(admission)), held_(entered) {}
  Places(Places&& other) noexcept : admission_(std::move(other.admission_)), held_(std::exchange(other.held_, 0)) {}
  Places& operator=(Places&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(held_, other.held_);
    return *this;
  }
  ~Places() { leave(held_); }

  void leave(int answers) {
    if (answers == 0) return;
    held_ -= answers;
    admission_->leave(answers);
  }

 private:
  std::shared_ptr<Admission> admission_;
  int held_ = 0;
};

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : left_(bytes) {}

  // As long as `spared` bytes stay for others.
  bool take(size_t bytes, size_t spared = 0) {
    size_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left < spared || left - spared < bytes) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<size_t> left_;
};

}  // namespace quire
