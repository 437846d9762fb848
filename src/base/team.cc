#include "base/team.h"

#include <algorithm>
#include <cassert>
#include <chrono>

namespace quire {
namespace {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins while `value` equals `old`, about 50 us; false when it still does.
template <class T>
bool spin_until_changed(const std::atomic<T>& value, T old) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

Team::Team(int threads) : size_(std::max(1, threads)), shares_(std::make_unique<Share[]>(static_cast<size_t>(size_))) {
  for (int thread = 1; thread < size_; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
}

Team::~Team() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Team::run(int tiles, Call call, void* context) {
  assert(running_.load() == 0);
  call_ = call;
  context_ = context;
  for (int thread = 0; thread < size_; ++thread) {
    Share& share = shares_[static_cast<size_t>(thread)];
    share.next.store(static_cast<int>(int64_t{tiles} * thread / size_), std::memory_order_relaxed);
    share.end = static_cast<int>(int64_t{tiles} * (thread + 1) / size_);
  }
  running_.store(size_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();  // costs a load while nobody sleeps
  work(0);
  for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    if (!spin_until_changed(running_, left)) running_.wait(left, std::memory_order_acquire);
  }
}

void Team::work(int thread) {
  for (int i = 0; i < size_; ++i) {
    Share& share = shares_[static_cast<size_t>((thread + i) % size_)];
    for (int tile; (tile = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;) call_(context_, tile, thread);
  }
}

void Team::serve(int thread) {
  for (uint32_t seen = 0;;) {
    if (!spin_until_changed(epoch_, seen)) epoch_.wait(seen, std::memory_order_acquire);
    const uint32_t now = epoch_.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    work(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace quire
