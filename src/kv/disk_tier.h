// Pages in a folder, one file each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/page_file.h"
#include "kv/page_key.h"

namespace quire {

struct DiskTierOptions {
  std::string directory;
  size_t limit_bytes = 0;  // for all page files in the folder; at least one file of a page
  size_t page_bytes = 0;
  std::string identity;
  std::function<void(const std::string&)> warn;  // may be empty
};

// What is in the folder, least recently used out. The folder itself is the index: a page is there when a file of its
// name is, and files appear whole, by rename. Several processes may use one folder: each finds the others' files when
// it looks through the folder, and takes a file that another removed for a miss.
//
// find(), accepts() and stats() may be called by any thread and never wait for files; the others by one thread.
class DiskTier {
 public:
  explicit DiskTier(DiskTierOptions options);  // throws Error when the folder can be neither opened nor created
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  bool find(PageKey key);  // a use
  // False for a while after a write failed: a full disk is not asked again for every page.
  bool accepts() const;

  // Starts reading the page's file ahead of read(), without waiting for it.
  void prefetch(PageKey key) const;
  // False when the page is not there (any more), cannot be read or is damaged; a damaged one is removed.
  bool read(PageKey key, std::span<std::byte> page);
  // Evicts what must go and writes the page, unless it is there. False when that failed.
  bool write(PageKey key, std::span<const std::byte> page);
  // Looks through the folder if it changed, and notes in the files which were used.
  void refresh();

  struct Stats {
    uint64_t pages, bytes, damaged;  // pages: of this identity
  };
  Stats stats() const;

 private:
  struct File {
    PageFileName name;
    uint64_t bytes;  // on the disk
    int64_t used;    // ns since the epoch
    int64_t noted;   // the use that the file's time says
    uint64_t seen;   // the last look through the folder that met it; of the files' thread alone
  };
  using Files = std::list<File>;
  struct Hash {
    size_t operator()(const PageFileName& n) const { return static_cast<size_t>(n.key.low ^ n.identity); }
  };
  struct Found {
    PageFileName name;
    uint64_t bytes;
    int64_t used;
  };

  PageFileName name(PageKey key) const { return {identity_, key}; }
  bool look_through();  // false: the folder cannot be listed; what is known stays, and writing is suspended
  std::optional<std::vector<Found>> list_folder();  // nullopt with errno, also when a part is missing
  void remove_abandoned(const char* temporary);
  void add(const Found& file);
  void forget(const PageFileName& name);
  bool make_room(uint64_t bytes);
  bool write_file(const PageFileName& name, std::span<const std::byte> page);
  void suspend(const char* doing, int error);
  void remove_damaged(const PageFileName& name, const char* why);
  void warn_once(const std::string& about, const std::string& message);

  DiskTierOptions options_;
  uint64_t identity_;
  uint64_t file_bytes_;
  int folder_ = -1;
  std::string temporary_;            // the one file being written, by this object alone
  uint64_t looks_ = 0;               // through the folder
  int64_t changed_ = -1;             // the folder's time at the last look
  uint64_t written_since_look_ = 0;  // bytes
  std::set<std::string> warned_;
  std::atomic<int64_t> suspended_until_{0};  // steady clock, ns

  mutable std::mutex mutex_;  // of what follows. The files' thread alone changes files_, so it may read that without
  Files order_;               // the last used first
  std::unordered_map<PageFileName, Files::iterator, Hash> files_;
  std::vector<PageFileName> used_;  // uses to be noted; bounded
  uint64_t pages_ = 0, bytes_ = 0, damaged_ = 0;
};

}  // namespace quire
