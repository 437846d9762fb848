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
#include "kv/page_tier.h"

namespace quire {

struct DiskTierOptions {
  std::string directory;
  size_t limit_bytes = 0;  // for all page files in the folder; at least one page file
  size_t page_bytes = 0;
  std::string identity;
  std::function<void(const std::string&)> warn;  // receives a bounded number of warnings; may be empty
  // Other processes use the folder all the time, perhaps from other machines: look_for() sees their files at once, and no
  // lock protects a file that is being written, only its age.
  bool shared = false;
};

// The folder is the index: a page is stored if a file of its name exists, and files appear whole, by rename. The least
// recently used files are removed first. Several processes may use a folder: each finds the others' files when it
// lists the folder, and treats a file that another has removed as a miss.
class DiskTier : public PageTier {
 public:
  explicit DiskTier(DiskTierOptions options);  // throws Error if the folder can be neither opened nor created
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  bool find(PageKey key) override;
  bool is_shared() const override { return options_.shared; }
  bool answers() const override { return true; }
  bool accepts() const override;
  Stats stats() const override;

  void look_for(std::span<const PageKey> keys) override;
  void prefetch(PageKey key) override;  // starts reading the page's file
  bool read(PageKey key, std::span<std::byte> page) override;
  bool write(PageKey key, std::span<const std::byte> page) override;
  // Lists the folder if it has changed, and updates the modification times of files that were used.
  void refresh() override;

 private:
  struct File {
    PageFileName name;
    uint64_t bytes;  // on the disk
    int64_t used;    // ns since the epoch
    int64_t noted;   // the last use that the file's modification time records
    uint64_t seen;   // number of the last listing that had it; used by the files' thread alone
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
  bool look_through();  // false: the folder cannot be listed; known files stay known, and writing is suspended
  std::optional<std::vector<Found>> list_folder();  // nullopt with errno, also if the listing is incomplete
  bool look_at(const PageFileName& file);
  void remove_abandoned(const char* temporary, int64_t changed);
  void add(const Found& file);
  void forget(const PageFileName& name);
  bool make_room(uint64_t bytes);
  bool write_file(const PageFileName& name, std::span<const std::byte> page);
  void count(uint64_t Stats::*what, uint64_t more = 1);
  void suspend(const char* action, int error);
  void remove_damaged(const PageFileName& name, const char* why);
  void warn_once(const std::string& file, const std::string& message);

  DiskTierOptions options_;
  uint64_t identity_;
  uint64_t file_bytes_;
  int folder_ = -1;
  std::string temporary_;            // the file that this object is writing
  uint64_t looks_ = 0;               // listings of the folder
  int64_t changed_ = -1;             // the folder's modification time at the last listing, ns; -1: not known
  uint64_t written_since_look_ = 0;  // bytes
  std::set<std::string> warned_;
  std::atomic<int64_t> suspended_until_{0};  // steady clock, ns

  mutable std::mutex mutex_;  // guards the following. Only the files' thread changes files_, so it reads it unlocked
  Files order_;               // most recently used first
  std::unordered_map<PageFileName, Files::iterator, Hash> files_;
  std::vector<PageFileName> used_;  // to be noted in the files; bounded
  Stats stats_;
};

}  // namespace quire
