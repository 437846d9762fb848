// Stores pages of the KV cache outside the pool, in host memory and on disk, by the key of their content.
// docs/prefix-cache.md describes the files.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/page_key.h"

namespace quire {

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
  // Memory for pages waiting to be written to disk, in addition to host_bytes; at least two pages. Allocated only with
  // a disk tier.
  size_t write_behind_bytes = size_t{32} << 20;
  // How often to look for pages that other processes wrote (only if the folder has changed).
  std::chrono::milliseconds rescan{5000};
  // How long the destructor waits for a file operation in progress, after the time to write queued pages.
  std::chrono::milliseconds patience{3000};
  // Receives a bounded number of warnings, on the store's thread (in constructor and destructor: the caller's), without
  // a lock held.
  std::function<void(const std::string&)> warn;
};

// Thread-safe. Memory for pages is allocated in the constructor only. find, put and load never touch files and, in
// steady state, never allocate: a thread of the store reads and writes the files. A stored page may disappear at any
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

  enum class Tier { kNone, kHost, kDisk };
  // Where the page is, as far as is known without looking at files. Counts as a use of the page.
  Tier find(PageKey key);

  // Copies the page (page_bytes) into the host tier, and queues it for the disk tier if it is not there. If the queue
  // is full, the page is not written to disk (Stats::dropped).
  void put(PageKey key, std::span<const std::byte> page);

  // The owner of the memory that loads write to. It must not be freed while a hanging read may still write to it.
  void keep_alive(std::shared_ptr<const void> memory);

  // kDone: `out` (page_bytes) holds the page. kPending: it is being read into `out`, which must stay valid and must not
  // be read until completed() returns the ticket. kMissing: nothing happened.
  enum class Load { kDone, kPending, kMissing };
  Load load(PageKey key, std::span<std::byte> out, uint64_t ticket);

  struct Completed {
    uint64_t ticket;
    bool ok;  // false: a miss (removed, unreadable or damaged); the content of `out` is undefined
    bool operator==(const Completed&) const = default;
  };
  // Replaces the content of `out` by the loads completed since the last call, in the order of load(). Pass the same
  // vector each time to reuse its memory.
  void completed(std::vector<Completed>& out);
  // Blocks until completed() has a result, no load is pending, or `most` has passed.
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
  };
  Stats stats() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with its thread
};

}  // namespace quire
