// Holds a file's content while it is mapped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace quire {

// Linux' lease of a file (fcntl, F_SETLEASE): a program that opens the file for writing, or cuts it, waits until
// `before_change` has returned. The system lets nobody wait longer than /proc/sys/fs/lease-break-time, usually 45 s.
// `before_change` runs at most once, on a thread of the lease, and must not throw.
class FileLease {
 public:
  // fd: open for reading only, and as long as the lease. nullptr if the system gives no lease: some program has the file
  // open for writing, it belongs to another user, or its file system has no leases.
  static std::unique_ptr<FileLease> take(int fd, std::function<void()> before_change);
  ~FileLease();
  FileLease(const FileLease&) = delete;
  FileLease& operator=(const FileLease&) = delete;

 private:
  FileLease(int fd, std::function<void()> before_change);
  void watch();

  int fd_;
  std::function<void()> before_change_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> state_ = 0;  // 0: starting, 1: held, -1: refused
  std::thread watcher_;
};

}  // namespace quire
