// Pages of KV cache that left the pool (or that shall outlive the process), by the key of their content: in host memory
// and on disk. The disk tier's files are described in docs/prefix-cache.md.
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
  size_t host_bytes = 0;  // of the host tier, whole pages of it; 0: none
  // The disk tier: a folder and the bytes that all page files in it may take together, also those of other models and
  // of other processes. An empty folder name or 0 bytes: none.
  std::string directory;
  size_t disk_bytes = 0;
  // What a page's bytes depend on: model hash and KV layout. Files of another identity are neither read nor an error;
  // they count as any other and go when they are the least recently used.
  std::string identity;
  // Memory for pages on their way to the disk, beside host_bytes; at least two pages. Taken only with a disk tier.
  size_t write_behind_bytes = size_t{32} << 20;
  // How often the folder is looked through for pages that other processes wrote (only when it changed).
  std::chrono::milliseconds rescan{5000};
  // Called on the store's thread (in the constructor: on the caller's), never with a lock held, a bounded number of
  // times.
  std::function<void(const std::string&)> warn;
};

// Thread-safe. All memory for pages is taken in the constructor; find, put and load neither touch files nor allocate in
// steady state: one thread of the store's own reads and writes the files. A page once put may be gone at any time
// (evicted, dropped, its file damaged), but what is given back is byte for byte what was put.
class PageStore {
 public:
  // Looks through the folder (about 2 us a file). Throws Error only when it can be neither opened nor created, or when
  // the memory cannot be had; a folder that cannot be written is read.
  explicit PageStore(PageStoreOptions options);
  // Writes what is queued, for 2 s at most. Pending loads are given up: their memory is not touched afterwards.
  ~PageStore();
  // What it takes for pages: the host tier, and those on their way to the disk.
  static size_t memory_bytes(const PageStoreOptions& options);
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  enum class Tier { kNone, kHost, kDisk };
  // Where the page is now, as far as is known without looking at files. Counts as a use of the page.
  Tier find(PageKey key);

  // Copies the page (page_bytes) into the host tier and queues it for the disk tier if it is not there. When the writer
  // is too far behind, the page does not get to the disk (Stats::dropped).
  void put(PageKey key, std::span<const std::byte> page);

  // kDone: `out` (page_bytes) holds the page. kPending: it is being read into `out`, which must stay valid, and must
  // not be read, until completed() gives the ticket back. kMissing: nothing happened.
  enum class Load { kDone, kPending, kMissing };
  Load load(PageKey key, std::span<std::byte> out, uint64_t ticket);

  struct Completed {
    uint64_t ticket;
    bool ok;  // false: gone, unreadable or damaged; `out` holds anything: treat it as a miss
    bool operator==(const Completed&) const = default;
  };
  // Replaces the content of `out` by what completed since the last call, in the order of load(). Keep the vector: its
  // memory is used again.
  void completed(std::vector<Completed>& out);
  // Blocks until completed() has something to give, but no longer than `most`: a disk may hang. Returns at once when no
  // load is pending.
  void wait_completed(std::chrono::milliseconds most = std::chrono::hours(1));
  // Blocks until everything put so far is written, dropped or failed.
  void flush();

  // How long the store's thread takes to read and check a page, smoothed, without queueing; for "load or recompute".
  // Before the first read: an assumed 1 GB/s, to which it goes back while nothing is read.
  double disk_read_seconds_per_page() const;

  struct Stats {
    uint64_t host_pages;
    uint64_t disk_pages;      // of this identity
    uint64_t dropped;         // pages kept from the disk because the writer was behind or writing is suspended
    uint64_t write_failures;  // pages lost to a full or failing disk
    uint64_t damaged;         // page files found damaged, and removed
  };
  Stats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
