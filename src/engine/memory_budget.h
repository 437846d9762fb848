// The memory that the models of a process share.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>

namespace quire {

inline constexpr size_t kMiB = size_t{1} << 20;

// Counts what models have taken; allocates nothing. Thread-safe.
class MemoryBudget {
 public:
  // A part of the budget, which its destructor gives back. The budget must outlive it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_) budget_->give_back(*this);
    }
    size_t bytes() const { return bytes_; }

   private:
    friend class MemoryBudget;
    Share(MemoryBudget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) {}
    MemoryBudget* budget_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit MemoryBudget(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }
  size_t left() const {
    const std::lock_guard lock(mutex_);
    return bytes_ - taken_;
  }
  int shares() const {  // how many there are now
    const std::lock_guard lock(mutex_);
    return shares_;
  }

  // Asks plan(bytes left) how many bytes to take, at most those; no other thread takes any meanwhile. If it throws, nothing
  // is taken.
  template <class Plan>
  Share take(Plan plan) {
    const std::lock_guard lock(mutex_);
    const size_t bytes = plan(bytes_ - taken_);
    taken_ += bytes;
    ++shares_;
    return {*this, bytes};
  }
  // The same for a share of this budget: its own bytes count as left. If plan() throws, it keeps them.
  template <class Plan>
  void resize(Share& share, Plan plan) {
    const std::lock_guard lock(mutex_);
    const size_t bytes = plan(bytes_ - taken_ + share.bytes_);
    taken_ += bytes - share.bytes_;
    share.bytes_ = bytes;
  }

 private:
  void give_back(const Share& share) {
    const std::lock_guard lock(mutex_);
    taken_ -= share.bytes_;
    --shares_;
  }

  const size_t bytes_;
  mutable std::mutex mutex_;
  size_t taken_ = 0;
  int shares_ = 0;
};

}  // namespace quire
