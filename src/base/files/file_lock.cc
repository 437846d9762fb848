#include "base/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace quire {
namespace {

// Whether the name still stands for the open file: its holder may have removed it.
bool is_current(int fd, const std::filesystem::path& file) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(file.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
         open.st_dev == named.st_dev;
}

}  // namespace

std::unique_ptr<FileLock> FileLock::try_take(const std::filesystem::path& file) {
  while (true) {
    // Writable by the group, as the hub's client creates them: users may share a cache.
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (fd < 0) throw no_resource("the lock {} cannot be opened: {}", file.string(), std::strerror(errno));
    std::unique_ptr<FileLock> lock(new FileLock(fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) return nullptr;
      return lock;  // a file system without locks: the hash of what is stored is checked all the same
    }
    if (is_current(fd, file)) return lock;
  }
}

std::unique_ptr<FileLock> FileLock::take(const std::filesystem::path& file, const std::function<void()>& waiting) {
  while (true) {
    if (auto lock = try_take(file)) return lock;
    waiting();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace quire
