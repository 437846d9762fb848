// Pages in host memory: a cache, and the queue of pages on their way to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "kv/page_key.h"

namespace quire {

// Two bounded sets of pages in one allocation: queued pages, first in, first out, which cannot be evicted, and kept
// ones, least recently used out. A queued page that is written becomes a kept one. Nothing is allocated after
// construction; not thread-safe, but a queued page's bytes stay in place and unchanged until written().
class HostTier {
 public:
  HostTier(size_t page_bytes, size_t kept_pages, size_t queued_pages);

  // The page's bytes, valid until the next call of put() or written(); empty when it is not here. A use.
  std::optional<std::span<const std::byte>> find(PageKey key);

  // Keeps a copy of the page if it is not here, and queues it if `queue`. False when it was to be queued and the queue
  // is full; it is kept nevertheless, if anything is.
  bool put(PageKey key, std::span<const std::byte> page, bool queue);

  struct Queued {
    PageKey key;
    std::span<const std::byte> page;
  };
  std::optional<Queued> first_queued() const;
  void written();  // the first queued page, or given up

  size_t pages() const { return kept_.size() + queued_.size(); }
  size_t queue_length() const { return queued_.size(); }

 private:
  struct Slot {
    PageKey key;
    std::byte* memory;
    bool queued;
  };
  using Slots = std::list<Slot>;  // a slot is a node for good and moves between the lists
  using Index = std::unordered_map<PageKey, Slots::iterator, PageKeyHash>;

  void drop_oldest();

  size_t page_bytes_, kept_pages_, queued_pages_;
  LargeBuffer memory_;
  Slots free_, kept_, queued_;  // kept_: the last used first; queued_: the first queued first
  Index index_;
  std::vector<Index::node_type> spare_nodes_;  // as many as free slots
};

}  // namespace quire
