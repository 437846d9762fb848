// Reads pages from the page store into the KV cache while other sequences run.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "engine/cache/page_cache.h"

namespace quire {

// A sequence that loads has s.cached.load.active set and computes nothing. Units are requested a few at a time and get
// their place in the KV cache when they are requested, so no step moves an unbounded number of them. A load is given
// up about a second after computing its pages would have finished; pages up to the first missing one are kept (none if
// groups have windows). Used by the engine's thread alone.
class PageLoader {
 public:
  PageLoader(PageCache& cache, Orders& orders);

  // Starts loading the s.cached.loads pages that PageCache::look_up found in the store. Releasing or ending the
  // sequence cancels the load.
  void start(Sequence& s);
  // Copies pages that have arrived into the KV cache, requests more, and finishes loads. `find` returns a sequence by
  // id, or nullptr if it has ended. A bounded number of units of host memory is copied; more until the time is over.
  void poll(const std::function<Sequence*(SequenceId)>& find, Clock::time_point until = {});
  // Blocks until there may be something to poll, for a few milliseconds at most.
  void wait();

  // A load was given up while the store was reading, and no read has completed since.
  bool disk_hangs() const { return hangs_; }
  uint64_t loaded_pages() const { return loaded_; }

  // Size of the read buffers.
  static size_t memory_bytes(size_t page_bytes);
  std::span<std::byte> buffers() const;

 private:
  struct Slot {  // what a read buffer is for
    SequenceId id{};
    uint32_t epoch = 0;
    int page = 0;
    int group = -1, part = -1;  // the unit's group, or the part of the checkpoint after the page
    bool busy = false;
  };
  struct Loading {
    SequenceId id;
    uint32_t epoch;
  };

  std::span<std::byte> buffer(size_t slot) const;
  bool may_copy() const;
  void request(Sequence& s);
  bool advance(Sequence& s);
  void take(const Sequence& s, const Slot& slot, std::span<const std::byte> bytes);
  void give_up(Sequence& s);
  bool finish(Sequence& s);

  PageCache& cache_;
  Orders& orders_;
  std::shared_ptr<LargeBuffer> buffers_;  // [slots][page bytes]; shared with reads that never return
  std::vector<Slot> slots_;               // empty without a store
  std::vector<PageStore::Completed> completed_;
  std::vector<Loading> loading_;
  int copied_ = 0;             // units of host memory copied in this step
  Clock::time_point until_{};  // when the step's time for copies is over
  bool hangs_ = false;
  uint32_t epoch_ = 0;
  uint64_t loaded_ = 0;
};

}  // namespace quire
