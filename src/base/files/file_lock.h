// Locks that programs agree on: flock on a file that has no content.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

namespace quire {

// Held while the object lives. The file stays, because another program may be waiting for it.
class FileLock {
 public:
  // nullptr: another program holds the lock. Creates the file; its folder must exist. Throws Error if it cannot be created.
  static std::unique_ptr<FileLock> try_take(const std::filesystem::path& file);
  // Waits for it. Calls `waiting` ten times a second, which may throw.
  static std::unique_ptr<FileLock> take(const std::filesystem::path& file, const std::function<void()>& waiting);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace quire
