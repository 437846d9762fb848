// Stores pages of the KV cache outside the pool, by the key of their content: in host memory, and on disk or in a tier that
// several processes share. docs/prefix-cache.md describes the files, docs/shared-cache.md the shared tiers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/host_tier.h"
#include "kv/page_key.h"
#include "kv/page_tier.h"

namespace quire {

using Warn = std::function<void(const std::string&)>;

struct PageStoreOptions {
  size_t page_bytes = 0;
  size_t host_bytes = 0;  // for whole pages in the host tier; 0: none
  // The disk tier: a folder, and the limit for all page files in it, including those of other models and processes. An
  // empty name or 0 bytes: none.
  std::string directory;
  size_t disk_bytes = 0;
  // What a page's bytes depend on: model hash and KV layout. Files of another identity are ignored, but count towards
  // the limit and are removed when they are the least recently used.
  std::string identity;
  // Opens a tier that takes the place of the disk tier; empty: none. Null: the tier cannot be used, as it has warned.
  std::function<std::unique_ptr<PageTier>(Warn)> open_shared;
  // Memory for pages waiting to be written to that tier, in addition to host_bytes; at least two pages. Allocated only
  // with such a tier.
  size_t write_behind_bytes = size_t{32} << 20;
  // How often to call PageTier::refresh().
  std::chrono::milliseconds rescan{5000};
  // How long the destructor waits for a file operation in progress, after the time to write queued pages.
  std::chrono::milliseconds patience{3000};
  // Receives a bounded number of warnings, on the store's thread (in constructor and destructor: the caller's), without
  // a lock held.
  Warn warn;
};

// Thread-safe. Memory for pages is allocated in the constructor only. find, ask, put, use_host_page and load never touch files or
// the network and, in steady state, never allocate: a thread of the store does that. A stored page may disappear at any
// time (evicted, dropped, its file damaged), but a page that is returned is byte for byte what was put.
class PageStore {
 public:
  // Lists the folder (about 2 us per file). Throws Error if it can be neither opened nor created, or memory is short. A
  // folder that cannot be written to is only read.
  explicit PageStore(PageStoreOptions options);
  // Writes queued pages, for at most 2 s, and gives up pending loads. If a disk operation hangs, its thread is left
  // behind after PageStoreOptions::patience, with a warning; what keep_alive() was given lives as long as that thread.
  ~PageStore();
  // Memory that the constructor allocates for pages.
  static size_t memory_bytes(const PageStoreOptions& options);
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  enum class Tier { kNone, kHost, kDisk };  // kDisk: on disk, or in the shared tier
  // Where the page is, as far as is known without looking at files. Counts as a use of the page.
  Tier find(PageKey key);

  bool is_shared() const;  // whether there is a shared tier
  // Has it asked which of the pages it has; once answered() is true for the number returned, find() knows. 0: there is
  // nothing to wait for, because no tier is shared, it does not answer, or more than kMostAsked keys would be waiting.
  static constexpr size_t kMostAsked = 65536;  // enough for a million tokens
  uint64_t ask(std::span<const PageKey> keys);
  bool answered(uint64_t question) const;

  // Functions that are given a page (page_bytes) of the host tier where it is, so that nothing is copied twice. They are called at
  // most once, under the store's lock: they must not call the store.
  using Fill = HostTier::Fill;
  using Use = std::function<void(std::span<const std::byte> page)>;
  // Has fill() write the page into the host tier, unless it is there, and queues it for the disk tier if it is not there. If the
  // queue is full, the page is not written to disk (Stats::dropped). If fill() cannot write it, the page is not stored.
  void put(PageKey key, const Fill& fill);
  // Whether the host tier has the page, which use() then gets.
  bool use_host_page(PageKey key, const Use& use);

  // The owner of the memory that loads write to. It must not be freed while a hanging read may still write to it.
  void keep_alive(std::shared_ptr<const void> memory);

  // Begins to read a page that the host tier lacks into `out` (page_bytes), which must stay valid and must not be read until
  // completed() returns the ticket. false: there is no such page, and nothing happened.
  bool load(PageKey key, std::span<std::byte> out, uint64_t ticket);

  // The memory of the host tier's pages.
  std::span<std::byte> host_memory() const;

  struct Completed {
    uint64_t ticket;
    bool ok;  // false: a miss (removed, unreadable or damaged); the content of `out` is undefined
    bool operator==(const Completed&) const = default;
  };
  // Replaces the content of `out` by the loads completed since the last call, in the order of load(). Pass the same
  // vector each time to reuse its memory.
  void completed(std::vector<Completed>& out);
  // Blocks until completed() has a result, no load and no question is pending, or `most` has passed.
  void wait_completed(std::chrono::milliseconds most = std::chrono::hours(1));
  // Blocks until every page put so far has been written or dropped, or has failed.
  void flush();

  // Smoothed time to read and check a page, without queueing; for "load or recompute". Starts at an assumed 1 GB/s and
  // returns to it while nothing is read.
  double disk_read_seconds_per_page() const;

  struct Stats {
    uint64_t host_pages;
    uint64_t disk_pages;      // those with this identity
    uint64_t dropped;         // pages not written because the queue was full or writing is suspended
    uint64_t write_failures;  // pages not written to a full or failing disk
    uint64_t damaged;         // damaged page files found and removed
    PageTier::Stats shared;   // of a shared tier; otherwise zeros
  };
  Stats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with its thread
};

}  // namespace quire
