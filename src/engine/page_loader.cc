#include "engine/page_loader.h"

#include <algorithm>
#include <chrono>

namespace quire {
namespace {

constexpr size_t kSlots = 16;                         // concurrent reads
constexpr int kCopiesPerStep = 16;                    // units of host memory copied per step
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
  // Windows may need pages that were found and have been evicted since.
  const int end = c.registered + (cache_.is_plain() || c.registered == c.found ? c.loads : 0);
  c.load = {.active = true,
            .epoch = epoch_,
            .next = c.registered,
            .end = end,
            .next_group = 0,
            .wanted = end,
            .shared = c.registered,
            .pending = 0,
            .until = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest)};
  request_units(s);
}

void PageLoader::request_units(Sequence& s) {
  PageLoad& load = s.cached.load;
  size_t slot = 0;
  while (load.next < load.end && copied_ < kCopiesPerStep) {
    // Since this was planned, others may have taken more units than expected.
    if (s.pages.pages() == load.next && !cache_.append_page(s, load.wanted)) {
      load.end = load.next;
      return;
    }
    while (load.next_group < cache_.groups() && !cache_.is_empty(s, load.next_group, load.next)) ++load.next_group;
    if (load.next_group == cache_.groups()) {
      ++load.next;
      load.next_group = 0;
      continue;
    }
    while (slot < slots_.size() && slots_[slot].busy) ++slot;
    if (slot == slots_.size()) return;
    const PageKey key = unit_key(cache_.key(s, load.next), load.next_group);
    switch (cache_.store()->load(key, buffer(slot), slot)) {
      case PageStore::Load::kMissing:
        load.end = load.next;
        return;
      case PageStore::Load::kDone:
        copy_from(slot, s.pages.unit(load.next_group, load.next));
        ++copied_;
        break;
      case PageStore::Load::kPending:
        slots_[slot] = {s.id, load.epoch, load.next, load.next_group, true};
        ++load.pending;
        break;
    }
    if (++load.next_group == cache_.groups()) ++load.next, load.next_group = 0;
  }
}

void PageLoader::copy_from(size_t slot, UnitId unit) {
  std::ranges::copy(buffer(slot), kv_.unit(kernel_unit(unit)).begin());
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
      copy_from(done.ticket, s->pages.unit(slot.group, slot.page));
    } else {
      load.end = std::min(load.end, slot.page);
    }
  }
  std::erase_if(loading_, [&](const Loading& l) { return !loading(l.id, l.epoch); });
  const auto now = Clock::now();
  for (const Loading& l : loading_) {  // may throw, so it comes before any load finishes
    Sequence& s = *find(l.id);
    if (now < s.cached.load.until) {
      request_units(s);
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
