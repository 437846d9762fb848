// Which slots of a range are in use: the states of recurrent layers.
#pragma once

#include <cassert>
#include <cstddef>
#include <optional>
#include <vector>

namespace quire {

// Slots [first, first + count). Allocates in the constructor only; every call is O(1). Not thread-safe.
class SlotPool {
 public:
  SlotPool(int first, int count) : count_(count) {
    for (int slot = first + count; slot-- > first;) free_.push_back(slot);
  }
  std::optional<int> take() {
    if (free_.empty()) return std::nullopt;
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(int slot) {
    assert(static_cast<int>(free_.size()) < count_);
    free_.push_back(slot);  // within the capacity: does not allocate
  }
  int free() const { return static_cast<int>(free_.size()); }
  int count() const { return count_; }

 private:
  std::vector<int> free_;  // a stack
  int count_;
};

}  // namespace quire
