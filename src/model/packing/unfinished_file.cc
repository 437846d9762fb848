#include "model/packing/unfinished_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files/write_all.h"

namespace quire {
namespace {

bool is_unfinished(std::string_view name) { return name.starts_with("packing-") && name.ends_with(".tmp"); }

std::string unfinished_name() {
  std::random_device random;  // process ids are not unique across containers
  return fmt::format("packing-{:08x}{:08x}.tmp", random(), random());
}

// A file being written is locked by its process. If it is not locked, nobody will finish it.
void remove_abandoned(const std::string& folder) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (!is_unfinished(at->path().filename().string())) continue;
    const int fd = ::open(at->path().c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(fd);
  }
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::filesystem::path& folder) {
  // Another process may take it for abandoned before it is locked (remove_abandoned()): then the next one is tried.
  for (struct stat status{}; fd_ < 0 || status.st_nlink == 0;) {
    if (fd_ >= 0) ::close(fd_);
    path_ = (folder / unfinished_name()).string();
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd_ < 0) {
      error_ = errno;
      path_.clear();
      return;
    }
    ::flock(fd_, LOCK_EX);
    if (::fstat(fd_, &status) != 0) return;
  }
}

UnfinishedFile::~UnfinishedFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

int UnfinishedFile::reserve(size_t bytes) const {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? errno : 0;
}

int UnfinishedFile::write_at(std::span<const std::byte> bytes, size_t offset) const {
  return write_all_at(fd_, bytes, offset);
}

int UnfinishedFile::rename_to(const std::string& path) {
  if (std::rename(path_.c_str(), path.c_str()) != 0) return errno;
  path_.clear();
  return 0;
}

int UnfinishedFile::remove_name() {
  if (::unlink(path_.c_str()) != 0) return errno;
  path_.clear();
  return 0;
}

int UnfinishedFile::release() { return std::exchange(fd_, -1); }

int open_pack_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::path parent = std::filesystem::absolute(folder, error);
  if (!parent.has_filename()) parent = parent.parent_path();  // "name/"
  std::filesystem::create_directories(parent.parent_path(), error);
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return errno;
  remove_abandoned(folder);
  return 0;
}

const char* remedy(int error) {
  if (error == ENOSPC || error == EDQUOT) return "free some space";
  if (error == ENOTDIR) return "choose a directory";
  return error == EACCES || error == EPERM || error == EROFS ? "make it writable" : "check the disk";
}

}  // namespace quire
