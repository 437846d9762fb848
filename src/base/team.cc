#include "base/team.h"

#include <algorithm>
#include <cassert>
#include <system_error>

#include "base/error.h"
#include "base/signals.h"
#include "base/spin.h"

namespace quire {
namespace {

thread_local const char this_thread = 0;  // its address tells threads apart

}  // namespace

Team::Team(int threads, const std::function<void()>& begin, bool takes_help)
    : size_(std::max(1, threads)),
      takes_help_(takes_help),
      shares_(std::make_unique<Share[]>(static_cast<size_t>(size_))) {
  const BlockSignals leave_signals_to_the_caller;
  threads_.reserve(static_cast<size_t>(size_ - 1));
  try {
    for (int thread = 1; thread < size_; ++thread) {
      threads_.emplace_back([this, thread, begin] {
        if (begin) begin();
        serve(thread);
      });
    }
  } catch (const std::system_error& e) {
    const size_t started = threads_.size();
    stop();
    throw no_resource("cannot start {} threads, only {}: {}; lower --threads", size_, started + 1, e.code().message());
  }
}

Team::~Team() { stop(); }

Team::Turn::Turn(Team& team) {
  // Only this thread writes its own address there, so the comparison cannot go wrong while others change the holder.
  if (team.holder_.load(std::memory_order_relaxed) == &this_thread) return;
  team_ = &team;
  const uint32_t ticket = team.drawn_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t served; (served = team.served_.load(std::memory_order_acquire)) != ticket;)
    team.served_.wait(served, std::memory_order_acquire);
  team.holder_.store(&this_thread, std::memory_order_relaxed);
}

Team::Turn::~Turn() {
  if (!team_) return;
  team_->holder_.store(nullptr, std::memory_order_relaxed);
  team_->served_.fetch_add(1, std::memory_order_release);
  team_->served_.notify_all();
}

void Team::stop() {
  stop_.store(true, std::memory_order_relaxed);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Team::run(int tiles, Call call, void* context) {
  assert(!is_open(gate_.load()) && inside(gate_.load()) == 0);
  call_ = call;
  context_ = context;
  for (int thread = 0; thread < size_; ++thread) {
    Share& share = shares_[static_cast<size_t>(thread)];
    share.next.store(static_cast<int>(int64_t{tiles} * thread / size_), std::memory_order_relaxed);
    share.end = static_cast<int>(int64_t{tiles} * (thread + 1) / size_);
  }
  gate_.fetch_add(kGateStep, std::memory_order_release);
  loops_.fetch_add(1, std::memory_order_release);
  loops_.notify_all();  // only a load if no thread sleeps
  work(0);
  gate_.fetch_add(kGateStep, std::memory_order_acq_rel);  // closed: no further thread enters
  const auto empty = [&] { return inside(gate_.load(std::memory_order_acquire)) == 0; };
  while (!spin_until(empty)) std::this_thread::yield();
}

void Team::work(int thread) {
  for (int i = 0; i < size_; ++i) {
    Share& share = shares_[static_cast<size_t>((thread + i) % size_)];
    for (int tile; (tile = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
      call_(context_, tile, thread);
  }
}

// Runs tiles of the loop that is under way, if it is this one; kAnyLoop: whichever it is.
void Team::join(int thread, uint32_t loop) {
  uint64_t gate = gate_.load(std::memory_order_acquire);
  while (is_open(gate) && (loop == kAnyLoop || number(gate) == loop)) {
    if (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) continue;
    work(thread);
    gate_.fetch_sub(1, std::memory_order_release);
    return;
  }
}

void Team::help(uint32_t loop) {
  assert(takes_help_ && loop != kAnyLoop);
  join(size_, loop);
}

void Team::serve(int thread) {
  for (uint32_t seen = 0;;) {
    const auto changed = [&] { return loops_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(changed)) loops_.wait(seen, std::memory_order_acquire);
    seen = loops_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    join(thread, kAnyLoop);
  }
}

}  // namespace quire
