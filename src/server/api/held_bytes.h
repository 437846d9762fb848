// A connection's share of a byte budget that all connections draw from.
#pragma once

#include <cstddef>
#include <utility>

#include "server/api/admission.h"

namespace quire {

// Returns the bytes to the budget when it is destroyed. The budget must outlive it.
class HeldBytes {
 public:
  explicit HeldBytes(ByteBudget& budget) : budget_(&budget) {}
  HeldBytes(HeldBytes&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HeldBytes() { release(); }

  size_t bytes() const { return bytes_; }

  // Makes bytes() at least `bytes`, leaving `spared` bytes of the budget to others. false: nothing has changed.
  bool grow_to(size_t bytes, size_t spared = 0) {
    if (bytes <= bytes_) return true;
    if (!budget_->take(bytes - bytes_, spared)) return false;
    bytes_ = bytes;
    return true;
  }
  // Makes bytes() exactly that. false: nothing has changed.
  bool change_to(size_t bytes, size_t spared = 0) {
    if (bytes > bytes_) return grow_to(bytes, spared);
    budget_->give_back(std::exchange(bytes_, bytes) - bytes);
    return true;
  }
  void release() { budget_->give_back(std::exchange(bytes_, 0)); }

 private:
  ByteBudget* budget_;
  size_t bytes_ = 0;
};

}  // namespace quire
