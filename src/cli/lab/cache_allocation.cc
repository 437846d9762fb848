#include "cli/lab/cache_allocation.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <deque>

#include "kv/page_table.h"
#include "ops/cache_layout.h"

namespace quire {
namespace {

// The token slots of the pool, and the room that each sequence has of them.
class RoomPool {
 public:
  RoomPool(CacheAllocation allocation, int longest, int pool_tokens)
      : allocation_(allocation),
        longest_(longest),
        free_(pool_tokens),
        units_(static_cast<uint32_t>(allocation == CacheAllocation::kPaged ? pool_tokens / kPageTokens : 1),
               kPageTokens) {}

  struct Room {
    int tokens = 0, reserved = 0;
    PageTable pages = PageTable();
  };

  // Room for `tokens`, if `beside` tokens are free after that.
  bool admit(Room& room, int tokens, int beside) {
    if (free_ - rounded(tokens) < beside) return false;
    return resize(room, tokens);
  }
  // False: there is no room. copied: tokens that had to be moved.
  bool grow(Room& room, int64_t& copied) {
    const bool moves = allocation_ == CacheAllocation::kDoubling && room.tokens == room.reserved;
    const int moved = room.tokens;
    if (!resize(room, room.tokens + 1)) return false;
    if (moves) copied += moved;
    return true;
  }
  void release(Room& room) {
    free_ += room.reserved;
    room.pages.release(units_);
    room.tokens = room.reserved = 0;
  }

 private:
  int rounded(int tokens) const {
    switch (allocation_) {
      case CacheAllocation::kContiguous:
        return longest_;
      case CacheAllocation::kDoubling:
        return std::max(kPageTokens, static_cast<int>(std::bit_ceil(static_cast<uint32_t>(tokens))));
      case CacheAllocation::kPaged:
        break;
    }
    return units_.pages_for(tokens) * kPageTokens;
  }
  bool resize(Room& room, int tokens) {
    const int more = rounded(tokens) - room.reserved;
    if (more > free_) return false;
    if (allocation_ == CacheAllocation::kPaged) {
      [[maybe_unused]] const bool grown = room.pages.grow(units_, tokens - room.tokens);
      assert(grown);
    }
    free_ -= more;
    room.reserved += more;
    room.tokens = tokens;
    return true;
  }

  CacheAllocation allocation_;
  int longest_, free_;
  UnitPool units_;
};

struct Running {
  SequenceLength length;
  int generated = 0;
  RoomPool::Room room = RoomPool::Room();
};

class PoolSimulation {
 public:
  PoolSimulation(CacheAllocation allocation, std::span<const SequenceLength> lengths, int longest, int pool_tokens)
      : keeps_room_free_(allocation != CacheAllocation::kContiguous), pool_(allocation, longest, pool_tokens) {
    for (const SequenceLength& length : lengths) waiting_.push_back({.length = length});
  }

  PoolRun run() {
    while (!waiting_.empty() || !running_.empty()) step();
    run_.running /= static_cast<double>(std::max<int64_t>(1, run_.steps));
    return run_;
  }

 private:
  void step() {
    admit();
    assert(!running_.empty());
    ++run_.steps;
    run_.running += static_cast<double>(running_.size());
    for (const Running& r : running_) {
      run_.use.used += r.room.tokens;
      run_.use.reserved += r.room.reserved;
    }
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& r = running_[i];
      if (++r.generated == r.length.answer) continue;
      while (!pool_.grow(r.room, run_.copied)) {
        const bool is_last = i + 1 == running_.size();
        preempt();
        if (is_last) return end_finished();
      }
    }
    end_finished();
  }

  void end_finished() {
    std::erase_if(running_, [&](Running& r) {
      if (r.generated < r.length.answer) return false;
      pool_.release(r.room);
      return true;
    });
  }

  void admit() {
    while (!waiting_.empty()) {
      Running& next = waiting_.front();
      const int beside = keeps_room_free_ ? static_cast<int>(running_.size() + 1) * kPageTokens : 0;
      const bool alone = running_.empty();
      if (!pool_.admit(next.room, next.length.prompt + next.generated, alone ? 0 : beside)) return;
      running_.push_back(std::move(next));
      waiting_.pop_front();
    }
  }

  void preempt() {
    Running& last = running_.back();
    ++run_.preemptions;
    run_.recomputed += last.room.tokens;
    pool_.release(last.room);
    waiting_.push_front(std::move(last));
    running_.pop_back();
  }

  bool keeps_room_free_;
  RoomPool pool_;
  std::deque<Running> waiting_;
  std::vector<Running> running_;  // in the order of admission
  PoolRun run_;
};

}  // namespace

PoolRun run_pool(CacheAllocation allocation, std::span<const SequenceLength> lengths, int longest, int pool_tokens) {
  assert(pool_tokens % kPageTokens == 0 && pool_tokens >= 2 * longest);
  return PoolSimulation(allocation, lengths, longest, pool_tokens).run();
}

}  // namespace quire
