// Where pages are kept outside this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/page_key.h"

namespace quire {

// A folder of this process (DiskTier), or a place that several processes share: a folder of all, or a server (RedisTier).
// A page may disappear at any time, and what is read is exactly what was written, or nothing. What fails is a miss.
class PageTier {
 public:
  virtual ~PageTier() = default;

  // ---- Thread-safe, and never waits for files or the network

  // Whether the page is stored, as far as is known. Counts as a use.
  virtual bool find(PageKey key) = 0;
  // Whether look_for() can find pages that find() does not know, which other processes have written.
  virtual bool is_shared() const = 0;
  // False for a while after the tier could not be reached: then there is nothing to ask or to read.
  virtual bool answers() const = 0;
  // False for a while after a write has failed, so that a full disk is not tried for every page.
  virtual bool accepts() const = 0;

  struct Stats {
    uint64_t pages = 0;    // of this identity that are stored, as far as is known
    uint64_t bytes = 0;    // of a folder: what all its page files take
    uint64_t damaged = 0;  // found and removed
    uint64_t hits = 0;     // pages read
    uint64_t misses = 0;   // pages that look_for() or read() did not find
    uint64_t read_bytes = 0, written_bytes = 0;
    uint64_t errors = 0;  // operations that failed: of a server, those after which the connection was closed
  };
  virtual Stats stats() const = 0;

  // ---- For one thread, the store's. These wait, each for a bounded time if the tier is a server.

  // Finds out which of the pages are stored: find() knows it then.
  virtual void look_for(std::span<const PageKey> keys) = 0;
  // Announces the next calls of read(), in this order.
  virtual void prefetch(PageKey key) = 0;
  // Returns false if the page is missing, unreadable or damaged; a damaged one is removed.
  virtual bool read(PageKey key, std::span<std::byte> page) = 0;
  // Writes the page unless it is known to be stored, evicting others if needed. Returns false on failure.
  virtual bool write(PageKey key, std::span<const std::byte> page) = 0;
  // From time to time: brings find() up to date, and tells others which pages were used.
  virtual void refresh() = 0;
};

}  // namespace quire
