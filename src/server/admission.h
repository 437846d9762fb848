// How many answers may be under way: what runs and a bounded queue behind it.
#pragma once

#include <mutex>

namespace quire {

// Thread-safe.
class Admission {
 public:
  explicit Admission(int capacity) : capacity_(capacity) {}

  // A place for `answers` more. A request larger than the capacity gets in when nothing else is there.
  bool enter(int answers) {
    const std::lock_guard lock(mutex_);
    if (inside_ > 0 && inside_ > capacity_ - answers) return false;
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

}  // namespace quire
