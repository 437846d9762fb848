#include "engine/page_loader.h"

#include <algorithm>
#include <chrono>

namespace quire {
namespace {

constexpr size_t kSlots = 16;                         // concurrent reads
constexpr int kCopiesPerStep = 16;                    // pages of host memory copied per step
constexpr double kPatience = 1;                       // seconds that loading may take longer than computing
constexpr std::chrono::milliseconds kLongestWait{5};  // then the engine looks for new requests

}  // namespace

size_t PageLoader::memory_bytes(size_t page_bytes) { return kSlots * page_bytes; }

PageLoader::PageLoader(PageCache& cache, CacheMemory& kv) : cache_(cache), kv_(kv) {
  if (!cache.store()) return;
  slots_.resize(kSlots);
  buffers_ = std::make_shared<LargeBuffer>(memory_bytes(kv.layout().unit_bytes()));
  cache.store()->keep_alive(buffers_);
}

std::span<std::byte> PageLoader::buffer(size_t slot) const {
  const size_t bytes = kv_.layout().unit_bytes();
  return {buffers_->data() + slot * bytes, bytes};
}

void PageLoader::start(Sequence& s) {
  CachedPages& c = s.cached;
  const std::chrono::duration<double> longest(kPatience + c.loads_save);
  loading_.push_back({s.id, ++epoch_});
  c.load = {.active = true,
            .epoch = epoch_,
            .next = c.registered,
            .end = c.registered + c.loads,
            .pending = 0,
            .until = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest)};
  request_pages(s);
}

void PageLoader::request_pages(Sequence& s) {
  PageLoad& load = s.cached.load;
  for (size_t slot = 0; slot < slots_.size() && load.next < load.end && copied_ < kCopiesPerStep;) {
    if (slots_[slot].busy) {
      ++slot;
      continue;
    }
    auto result = PageStore::Load::kMissing;
    // Since this was planned, others may have taken more pages than expected.
    if (cache_.append_page(s)) result = cache_.store()->load(cache_.key(s, load.next), buffer(slot), slot);
    switch (result) {
      case PageStore::Load::kMissing:
        load.end = load.next;
        return;
      case PageStore::Load::kDone:
        std::ranges::copy(buffer(slot), kv_.unit(s.page_ids[static_cast<size_t>(load.next)]).begin());
        ++copied_;
        break;
      case PageStore::Load::kPending:
        slots_[slot] = {s.id, load.epoch, load.next, true};
        ++load.pending;
        break;
    }
    ++load.next;
  }
}

// The disk hangs or is too slow: keep the pages up to the first missing one.
void PageLoader::give_up(Sequence& s) {
  PageLoad& load = s.cached.load;
  load.end = std::min(load.end, load.next);
  for (const Slot& slot : slots_) {
    hangs_ |= slot.busy;
    if (slot.busy && slot.id == s.id && slot.epoch == load.epoch) load.end = std::min(load.end, slot.page);
  }
  load.pending = 0;
}

bool PageLoader::finish(Sequence& s) {
  PageLoad& load = s.cached.load;
  if (load.pending > 0 || load.next < load.end) return false;
  load.active = false;
  loaded_ += static_cast<uint64_t>(load.end - s.cached.registered);
  cache_.keep_loaded(s, load.end);
  return true;
}

void PageLoader::poll(const std::function<Sequence*(SequenceId)>& find) {
  copied_ = 0;
  if (loading_.empty() && std::none_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.busy; })) return;
  const auto loading = [&](SequenceId id, uint32_t epoch) -> Sequence* {
    Sequence* s = find(id);
    return s && s->cached.load.active && s->cached.load.epoch == epoch ? s : nullptr;
  };
  cache_.store()->completed(completed_);
  hangs_ &= completed_.empty();
  for (const PageStore::Completed& done : completed_) {
    Slot& slot = slots_[done.ticket];
    slot.busy = false;
    Sequence* s = loading(slot.id, slot.epoch);
    if (!s) continue;
    PageLoad& load = s->cached.load;
    --load.pending;
    if (done.ok) {
      std::ranges::copy(buffer(done.ticket), kv_.unit(s->page_ids[static_cast<size_t>(slot.page)]).begin());
    } else {
      load.end = std::min(load.end, slot.page);
    }
  }
  std::erase_if(loading_, [&](const Loading& l) { return !loading(l.id, l.epoch); });
  const auto now = Clock::now();
  for (const Loading& l : loading_) {  // may throw, so it comes before any load finishes
    Sequence& s = *find(l.id);
    if (now < s.cached.load.until) {
      request_pages(s);
    } else {
      give_up(s);
    }
  }
  std::erase_if(loading_, [&](const Loading& l) { return finish(*find(l.id)); });
}

void PageLoader::wait() {
  if (!slots_.empty() && copied_ < kCopiesPerStep) cache_.store()->wait_completed(kLongestWait);
}

}  // namespace quire
