#include "engine/cache/page_loader.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace quire {
namespace {

constexpr size_t kSlots = 16;                         // concurrent reads
constexpr int kCopiesPerStep = 16;                    // units of host memory copied per step
constexpr double kPatience = 1;                       // seconds that loading may take longer than computing
constexpr std::chrono::milliseconds kLongestWait{5};  // then the engine looks for new requests

}  // namespace

size_t PageLoader::memory_bytes(size_t page_bytes) { return kSlots * page_bytes; }

PageLoader::PageLoader(PageCache& cache, Orders& orders) : cache_(cache), orders_(orders) {
  if (!cache.shared().store()) return;
  slots_.resize(kSlots);
  buffers_ = std::make_shared<LargeBuffer>(memory_bytes(cache.shared().blob_bytes()));
  cache.shared().store()->keep_alive(buffers_);
}

std::span<std::byte> PageLoader::buffers() const {
  return buffers_ ? std::span(buffers_->data(), buffers_->size()) : std::span<std::byte>();
}

std::span<std::byte> PageLoader::buffer(size_t slot) const {
  const size_t bytes = cache_.shared().blob_bytes();
  return {buffers_->data() + slot * bytes, bytes};
}

bool PageLoader::may_copy() const { return copied_ < kCopiesPerStep || Clock::now() < until_; }

void PageLoader::start(Sequence& s) {
  CachedPages& c = s.cached;
  const std::chrono::duration<double> longest(kPatience + c.hit.loads_save);
  loading_.push_back({s.id, ++epoch_});
  // Windows may need pages that were found and have been evicted since.
  const int end = c.registered + (cache_.shared().is_plain() || c.registered == c.hit.found ? c.hit.loads : 0);
  c.load = {.active = true,
            .epoch = epoch_,
            .next = c.registered,
            .end = end,
            .next_group = 0,
            .wanted = end,
            .shared = c.registered,
            .next_part = 0,
            .parts = cache_.begin_state(s, end),
            .pending = 0,
            .until = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest)};
  if (!orders_.copies_meanwhile()) request(s);
}

void PageLoader::request(Sequence& s) {
  PageLoad& load = s.cached.load;
  size_t free = 0;  // slot
  while (may_copy() && advance(s)) {
    while (free < slots_.size() && slots_[free].busy) ++free;
    if (free == slots_.size()) return;
    const bool unit = load.next < load.end;
    const int page = unit ? load.next : load.end - 1;
    Slot slot{s.id, load.epoch, page, unit ? load.next_group : -1, unit ? -1 : load.next_part, true};
    const PageKey& of_page = page_key(s, page);
    const PageKey key = unit ? unit_key(of_page, slot.group) : checkpoint_key(of_page, slot.part);
    PageStore& store = *cache_.shared().store();
    const auto take_host_page = [&](std::span<const std::byte> bytes) { take(s, slot, bytes); };
    if (store.use_host_page(key, std::ref(take_host_page))) {
      ++copied_;
    } else if (store.load(key, buffer(free), free)) {
      slots_[free] = slot;
      ++load.pending;
    } else {
      load.end = page;
      return;
    }
    if (!unit) {
      ++load.next_part;
    } else if (++load.next_group == cache_.shared().groups()) {
      ++load.next;
      load.next_group = 0;
    }
  }
}

// Moves to the next unit or part to request, and makes room for it. false: all are requested, or the load ends here.
bool PageLoader::advance(Sequence& s) {
  PageLoad& load = s.cached.load;
  while (load.next < load.end) {
    // Since this was planned, others may have taken more units than expected.
    if (s.pages.pages() == load.next && !cache_.append_page(s, load.wanted)) {
      load.end = load.next;
      return false;
    }
    while (load.next_group < cache_.shared().groups() && !cache_.is_empty(s, load.next_group, load.next))
      ++load.next_group;
    if (load.next_group < cache_.shared().groups()) return true;
    ++load.next;
    load.next_group = 0;
  }
  return load.end == load.wanted && load.next_part < load.parts;
}

// Copies a unit, or a part of a state, to its place.
void PageLoader::take(const Sequence& s, const Slot& slot, std::span<const std::byte> bytes) {
  if (slot.group >= 0) {
    const int unit = kernel_unit(s.pages.unit(slot.group, slot.page));
    orders_.write({.group = slot.group, .index = unit, .size = bytes.size()}, bytes);
  } else {
    const size_t begin = static_cast<size_t>(slot.part) * bytes.size();
    const size_t size = std::min(bytes.size(), cache_.shared().state_bytes() - begin);
    orders_.write({.of_state = true, .index = s.cached.state.slot, .offset = begin, .size = size}, bytes.first(size));
  }
}

// The disk hangs or is too slow: keep the pages up to the first missing one.
void PageLoader::give_up(Sequence& s) {
  PageLoad& load = s.cached.load;
  load.end = std::min(load.end, load.next_part < load.parts ? load.wanted - 1 : load.next);
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
  if (load.end == load.wanted && load.next_part < load.parts) return false;
  load.active = false;
  loaded_ += static_cast<uint64_t>(load.end - s.cached.registered);
  cache_.keep_loaded(s, load.end);
  return true;
}

void PageLoader::poll(const std::function<Sequence*(SequenceId)>& find, Clock::time_point until) {
  copied_ = 0;
  until_ = until;
  if (loading_.empty() && std::none_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.busy; })) return;
  const auto loading = [&](SequenceId id, uint32_t epoch) -> Sequence* {
    Sequence* s = find(id);
    return s && s->cached.load.active && s->cached.load.epoch == epoch ? s : nullptr;
  };
  cache_.shared().store()->completed(completed_);
  hangs_ &= completed_.empty();
  for (const PageStore::Completed& done : completed_) {
    Slot& slot = slots_[done.ticket];
    slot.busy = false;
    Sequence* s = loading(slot.id, slot.epoch);
    if (!s) continue;
    PageLoad& load = s->cached.load;
    --load.pending;
    if (done.ok) {
      take(*s, slot, buffer(done.ticket));
    } else {
      load.end = std::min(load.end, slot.page);
    }
  }
  std::erase_if(loading_, [&](const Loading& l) { return !loading(l.id, l.epoch); });
  const auto now = Clock::now();
  for (const Loading& l : loading_) {  // may throw, so it comes before any load finishes
    Sequence& s = *find(l.id);
    if (now < s.cached.load.until) {
      request(s);
    } else {
      give_up(s);
    }
  }
  std::erase_if(loading_, [&](const Loading& l) { return finish(*find(l.id)); });
}

void PageLoader::wait() {
  if (!slots_.empty() && may_copy()) cache_.shared().store()->wait_completed(kLongestWait);
}

}  // namespace quire
