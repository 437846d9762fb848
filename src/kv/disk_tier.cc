#include "kv/disk_tier.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kSuspension = 60 * kSecond;  // how long writing is suspended after a failure
constexpr int64_t kNoteUse = 60 * kSecond;     // a use is noted in the file if the last note is older
constexpr size_t kUsesToNote = 1024;           // per refresh; further ones are dropped
constexpr size_t kWarnings = 16;
// In a shared folder, a file that is being written is abandoned if it has not changed for so long. (A page takes seconds at
// most. Should a writer stop for longer and go on, it loses that page.)
constexpr int64_t kLease = 600 * kSecond;
// A change in the same tick of the file system's clock as the last one is invisible: of a few ms, or of up to 2 s on others'.
constexpr int64_t kOwnTick = kSecond / 10, kOthersTick = 5 * kSecond / 2;
// A process lists the folder after writing 1/32 of the limit. So each other process can exceed the limit by at most
// 1/32 with files that this one does not know of.
constexpr uint64_t kLookEvery = 32;

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }
  bool close_checked() { return close(std::exchange(fd_, -1)) == 0; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// ESTALE: another machine removed the file.
bool is_missing(int error) { return error == ENOENT || error == ESTALE; }

// Errors caused by limits of the process or machine, not by the file.
bool is_shortage(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

std::string message(int error) { return std::generic_category().message(error); }

template <class Clock>
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}
int64_t wall_clock() { return now<std::chrono::system_clock>(); }
int64_t steady_clock() { return now<std::chrono::steady_clock>(); }
int64_t nanoseconds(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

uint64_t bytes_on_disk(uint64_t file_bytes) { return (file_bytes + 4095) / 4096 * 4096; }

int open_folder(const std::string& path, std::string_view flag) {
  std::filesystem::path parent = path;
  if (!parent.has_filename()) parent = parent.parent_path();  // "name/"
  std::error_code not_created;
  if (parent.has_parent_path()) std::filesystem::create_directories(parent.parent_path(), not_created);
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    not_created.clear();
  } else if (!not_created) {
    not_created = std::error_code(errno, std::generic_category());
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) return fd;
  const int error = errno;
  if (error == ENOENT && not_created)
    throw invalid("the cache folder {} cannot be created: {}; choose a {} that can be written to", path,
                  not_created.message(), flag);
  throw invalid("the cache folder {} cannot be opened: {}; make it accessible or choose another {}", path,
                message(error), flag);
}

bool is_temporary(std::string_view name) { return name.starts_with("writing-") && name.ends_with(".tmp"); }

std::string temporary_name() {
  std::random_device random;  // process ids are not unique across containers
  return fmt::format("writing-{:08x}{:08x}.tmp", random(), random());
}

}  // namespace

DiskTier::DiskTier(DiskTierOptions options)
    : options_(std::move(options)),
      identity_(page_file_identity(options_.identity, options_.page_bytes)),
      file_bytes_(bytes_on_disk(page_file_bytes(options_.page_bytes))),
      folder_(open_folder(options_.directory, options_.shared ? "--shared-cache" : "--cache-dir")),
      temporary_(temporary_name()) {
  files_.reserve(std::min<size_t>(options_.limit_bytes / file_bytes_ + 1, size_t{1} << 20));
  used_.reserve(kUsesToNote);
  if (look_through()) make_room(0);
}

DiskTier::~DiskTier() { close(folder_); }

// ---- any thread ----

bool DiskTier::find(PageKey key) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name(key));
  if (found == files_.end()) return false;
  File& file = *found->second;
  order_.splice(order_.begin(), order_, found->second);
  file.used = wall_clock();
  if (file.used - file.noted > kNoteUse && used_.size() < kUsesToNote) {
    file.noted = file.used;
    used_.push_back(file.name);
  }
  return true;
}

bool DiskTier::accepts() const { return steady_clock() >= suspended_until_.load(std::memory_order_relaxed); }

PageTier::Stats DiskTier::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// ---- the files' thread ----

void DiskTier::count(uint64_t Stats::*what, uint64_t more) {
  const std::lock_guard lock(mutex_);
  stats_.*what += more;
}

// Others may have written the file since the folder was listed, or removed it.
bool DiskTier::look_at(const PageFileName& file) {
  struct stat status {};
  const bool stored = fstatat(folder_, text(file).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
  if (stored && S_ISREG(status.st_mode)) {
    add({file, bytes_on_disk(static_cast<uint64_t>(status.st_size)), nanoseconds(status.st_mtim)});
    return true;
  }
  if (stored || is_missing(errno)) forget(file);
  return false;
}

void DiskTier::look_for(std::span<const PageKey> keys) {
  for (const PageKey key : keys)
    if (!look_at(name(key))) count(&Stats::misses);
}

void DiskTier::prefetch(PageKey key) {
  const OpenFile open(openat(folder_, text(name(key)).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (open) posix_fadvise(open.fd(), 0, 0, POSIX_FADV_WILLNEED);
}

bool DiskTier::read(PageKey key, std::span<std::byte> page) {
  const PageFileName file = name(key);
  const OpenFile open(openat(folder_, text(file).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!open) {
    const int error = errno;
    if (!is_missing(error)) warn_once(text(file), fmt::format("cannot be read: {}", message(error)));
    if (!is_shortage(error)) forget(file);  // it will be written again
    count(is_missing(error) ? &Stats::misses : &Stats::errors);
    return false;
  }
  const PageFileRead result = read_page_file(open.fd(), file, page);
  if (result.state == PageFileRead::kWhole) {
    futimens(open.fd(), nullptr);  // records the use, also for other processes; may fail
    const std::lock_guard lock(mutex_);
    ++stats_.hits;
    stats_.read_bytes += page.size();
    return true;
  }
  if (result.state == PageFileRead::kDamaged) {
    remove_damaged(file, result.why);
  } else if (const int error = errno; is_missing(error)) {
    forget(file);
    count(&Stats::misses);
  } else {
    warn_once(text(file), fmt::format("{}: {}", result.why, message(error)));
    if (!is_shortage(error)) forget(file);
    count(&Stats::errors);
  }
  return false;
}

bool DiskTier::write(PageKey key, std::span<const std::byte> page) {
  const PageFileName file = name(key);
  if (files_.contains(file) || (options_.shared && look_at(file))) return true;
  if (!accepts()) return false;
  if (written_since_look_ + file_bytes_ > options_.limit_bytes / kLookEvery && !look_through()) return false;
  if (!make_room(file_bytes_) || !write_file(file, page)) return false;
  written_since_look_ += file_bytes_;
  count(&Stats::written_bytes, page.size());
  add({file, file_bytes_, wall_clock()});
  return true;
}

// No fsync: after kill -9 the kernel still has the data, and the checksum detects what a power failure tore. A lost
// page is computed again.
bool DiskTier::write_file(const PageFileName& name, std::span<const std::byte> page) {
  OpenFile open(
      openat(folder_, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!open) {
    suspend("create a file", errno);
    unlinkat(folder_, temporary_.c_str(), 0);  // EEXIST: an earlier one could not be removed
    return false;
  }
  if (!options_.shared) flock(open.fd(), LOCK_EX | LOCK_NB);  // marks the file as not abandoned
  // A network file system may send the bytes only when the file is closed, and the name must not be there before them.
  if (!write_page_file(open.fd(), name, page) || (options_.shared && !open.close_checked())) {
    suspend("write a page", errno);
    unlinkat(folder_, temporary_.c_str(), 0);
    return false;
  }
  if (renameat(folder_, temporary_.c_str(), folder_, text(name).c_str()) == 0) return true;
  // Another process removed the file as abandoned, just before it was locked or after a long pause. One page is lost.
  if (!is_missing(errno)) suspend("rename a file", errno);
  unlinkat(folder_, temporary_.c_str(), 0);
  return false;
}

// Evicts until `bytes` more fit.
bool DiskTier::make_room(uint64_t bytes) {
  for (;;) {
    PageFileName oldest;
    {
      const std::lock_guard lock(mutex_);
      if (order_.empty() || stats_.bytes + bytes <= options_.limit_bytes) return true;
      oldest = order_.back().name;
    }
    if (unlinkat(folder_, text(oldest).c_str(), 0) != 0 && !is_missing(errno)) {
      suspend("remove a file", errno);
      // The file stays readable and counts towards the limit; the next attempt takes another one.
      const std::lock_guard lock(mutex_);
      order_.splice(order_.begin(), order_, files_.at(oldest));
      return false;
    }
    forget(oldest);
  }
}

void DiskTier::refresh() {
  std::vector<PageFileName> used;
  used.reserve(kUsesToNote);
  {
    const std::lock_guard lock(mutex_);
    used.swap(used_);
  }
  for (const PageFileName& name : used) utimensat(folder_, text(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  struct stat status {};
  if (fstat(folder_, &status) != 0 || nanoseconds(status.st_mtim) != changed_) {
    if (look_through()) make_room(0);
  }
}

bool DiskTier::look_through() {
  struct stat status {};
  std::optional<std::vector<Found>> found;
  if (fstat(folder_, &status) == 0) found = list_folder();
  if (!found) {
    // Known files stay known. Nothing is written until the folder can be listed, because its size is not known.
    suspend("list the files", errno);
    changed_ = -1;
    written_since_look_ = options_.limit_bytes;
    return false;
  }
  const int64_t changed = nanoseconds(status.st_mtim);
  changed_ = wall_clock() - changed > (options_.shared ? kOthersTick : kOwnTick) ? changed : -1;
  written_since_look_ = 0;

  std::sort(found->begin(), found->end(), [](const Found& a, const Found& b) { return a.used < b.used; });
  ++looks_;
  for (const Found& file : *found) add(file);  // locks once per file, so that nobody waits for the whole folder
  std::vector<PageFileName> vanished;
  for (const auto& [name, file] : files_)
    if (file->seen != looks_) vanished.push_back(name);
  for (const PageFileName& name : vanished) forget(name);
  return true;
}

std::optional<std::vector<DiskTier::Found>> DiskTier::list_folder() {
  const int fd = openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const std::unique_ptr<DIR, CloseFolder> folder(fdopendir(fd));
  if (!folder) {
    const int error = errno;
    close(fd);
    errno = error;
    return std::nullopt;
  }
  std::vector<Found> found;
  const dirent* entry = nullptr;
  while (errno = 0, (entry = readdir(folder.get())) != nullptr) {
    const std::string text = entry->d_name;
    if (text == "." || text == ".." || text == temporary_) continue;
    if (options_.shared && text.starts_with(".nfs")) continue;  // a removed file that some process still reads
    const auto name = parse_page_file_name(text);
    const bool ours = name || is_temporary(text);
    struct stat status {};
    if (ours && fstatat(folder_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (is_missing(errno)) continue;  // removed meanwhile
      return std::nullopt;
    }
    if (!ours || !S_ISREG(status.st_mode)) {
      warn_once(text, "is not a file of the cache and is left alone");
    } else if (!name) {
      remove_abandoned(entry->d_name, nanoseconds(status.st_mtim));
    } else if (name->identity == identity_ &&
               static_cast<uint64_t>(status.st_size) != page_file_bytes(options_.page_bytes)) {
      remove_damaged(*name, "has the wrong size");
    } else {
      found.push_back({*name, bytes_on_disk(static_cast<uint64_t>(status.st_size)), nanoseconds(status.st_mtim)});
    }
  }
  if (errno != 0 && errno != ENOENT) return std::nullopt;  // ENOENT: the folder has been removed, so it is empty
  return found;
}

// A file being written is locked by its process, or in a shared folder changes. Otherwise nobody will finish it.
void DiskTier::remove_abandoned(const char* temporary, int64_t changed) {
  if (options_.shared) {
    if (wall_clock() - changed > kLease) unlinkat(folder_, temporary, 0);
    return;
  }
  if (looks_ > 0) return;  // only at the start, because it can hit a file that is not locked yet
  const OpenFile open(openat(folder_, temporary, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (open && flock(open.fd(), LOCK_EX | LOCK_NB) == 0) unlinkat(folder_, temporary, 0);
}

void DiskTier::add(const Found& found) {
  const std::lock_guard lock(mutex_);
  if (const auto known = files_.find(found.name); known != files_.end()) {
    File& file = *known->second;
    file.seen = looks_;
    stats_.bytes += found.bytes - file.bytes;
    file.bytes = found.bytes;
    file.noted = std::max(file.noted, found.used);
    if (found.used > file.used) {  // by another process
      file.used = found.used;
      order_.splice(order_.begin(), order_, known->second);
    }
    return;
  }
  Files file{{found.name, found.bytes, found.used, found.used, looks_}};
  files_.emplace(found.name, file.begin());  // may throw, so it comes first
  order_.splice(order_.begin(), file);
  stats_.bytes += found.bytes;
  stats_.pages += found.name.identity == identity_;
}

void DiskTier::forget(const PageFileName& name) {
  const std::lock_guard lock(mutex_);
  const auto known = files_.find(name);
  if (known == files_.end()) return;
  stats_.bytes -= known->second->bytes;
  stats_.pages -= name.identity == identity_;
  order_.erase(known->second);
  files_.erase(known);
}

void DiskTier::remove_damaged(const PageFileName& name, const char* why) {
  forget(name);
  unlinkat(folder_, text(name).c_str(), 0);
  count(&Stats::damaged);
  warn_once(text(name), fmt::format("{}; it was removed, and its page will be computed again", why));
}

void DiskTier::suspend(const char* action, int error) {
  suspended_until_.store(steady_clock() + kSuspension, std::memory_order_relaxed);
  count(&Stats::errors);
  const char* const remedy = error == ENOSPC || error == EDQUOT ? "free some space or lower --cache-size"
                             : error == EACCES || error == EPERM || error == EROFS ? "make it writable"
                                                                                   : "check the disk";
  warn_once("", fmt::format(": cannot {}: {}; {}. Stored pages are still read, and writing is tried again every {} s",
                            action, message(error), remedy, kSuspension / kSecond));
}

// At most one warning per file and kWarnings about files in total; always one about the folder itself (`file` empty).
void DiskTier::warn_once(const std::string& file, const std::string& message) {
  if (!options_.warn || (warned_.size() >= kWarnings && !file.empty()) || !warned_.insert(file).second) return;
  options_.warn(fmt::format("cache folder {}{}{}{}", options_.directory, file.empty() ? "" : ": " + file + " ", message,
                            warned_.size() == kWarnings ? " (no more warnings about files)" : ""));
}

}  // namespace quire
