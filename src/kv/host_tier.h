// Pages in host memory: a cache, and a queue of pages to be written to disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "kv/page_key.h"

namespace quire {

// Two bounded sets of pages in one allocation: queued pages (first in, first out, never evicted) and kept pages (least
// recently used are evicted). A queued page becomes a kept one when it is written. Allocates in the constructor only.
// Not thread-safe, but a queued page's bytes stay in place and unchanged until written().
class HostTier {
 public:
  HostTier(size_t page_bytes, size_t kept_pages, size_t queued_pages);

  // The page's bytes, valid until the next put() or written(); empty if it is not here. Counts as a use.
  std::optional<std::span<const std::byte>> find(PageKey key);

  // Keeps what fill() writes, if the page is not here yet, and queues it if `queue`; fill() returns false if it cannot. Returns
  // false if the page should have been queued but the queue is full; it is kept nevertheless, if kept pages are configured.
  using Fill = std::function<bool(std::span<std::byte> page)>;
  bool put(PageKey key, const Fill& fill, bool queue);

  // Of all pages.
  std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }

  struct Queued {
    PageKey key;
    std::span<const std::byte> page;
  };
  std::optional<Queued> first_queued() const;
  void written();  // the first queued page has been written or given up

  size_t pages() const { return kept_.size() + queued_.size(); }
  size_t queue_length() const { return queued_.size(); }

 private:
  struct Slot {
    PageKey key;
    std::byte* memory;
    bool queued;
  };
  using Slots = std::list<Slot>;  // slots are never freed; they move between the lists
  using Index = std::unordered_map<PageKey, Slots::iterator, PageKeyHash>;

  void drop_oldest();

  size_t page_bytes_, kept_pages_, queued_pages_;
  LargeBuffer memory_;
  Slots free_, kept_, queued_;  // kept_: most recently used first; queued_: in order
  Index index_;
  std::vector<Index::node_type> spare_nodes_;  // as many as free slots
};

}  // namespace quire
