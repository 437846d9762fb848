#include "base/files/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// NAME without a slash at its end.
fs::path plain_path(fs::path path) {
  if (!path.has_filename()) path = path.parent_path();
  return path;
}

[[noreturn]] void fail_to(const char* what, const fs::path& path, int reason) {
  throw no_resource("{} could not be {}: {}", path.string(), what, std::strerror(reason));
}

void write_all(int descriptor, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to("written", path, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(descriptor) != 0) fail_to("written", path, errno);
}

// Names reach the disk with the folder that holds them.
void sync_folder(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// Whether the file system lacks a flag of renameat2(), as network file systems do.
bool lacks_flag() { return errno == EINVAL || errno == ENOSYS; }

// These set errno where they return false. Without the flags, another program may come between the two steps; then nothing
// is lost but the name.
bool rename_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (!lacks_flag()) return false;
  if (std::error_code error; fs::exists(fs::symlink_status(to, error))) {
    errno = EEXIST;
    return false;
  }
  return ::rename(from.c_str(), to.c_str()) == 0;
}
bool exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (!lacks_flag()) return false;
  const fs::path aside = a.string() + "-old";
  if (::rename(b.c_str(), aside.c_str()) != 0) return false;
  if (::rename(a.c_str(), b.c_str()) == 0) return ::rename(aside.c_str(), a.c_str()) == 0;
  const int reason = errno;
  ::rename(aside.c_str(), b.c_str());
  errno = reason;
  return false;
}

}  // namespace

OutputFolder::OutputFolder(fs::path path, bool replace) : path_(plain_path(std::move(path))), replace_(replace) {
  check();
  std::string name = path_.string() + ".tmp-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    throw invalid("{} cannot be written: {}", path_.string(), std::strerror(errno));
  unfinished_ = name;
  // mkdtemp() makes it private; the name it is for is not.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(unfinished_.c_str(), 0777 & ~mask);
}

OutputFolder::OutputFolder(fs::path path, bool replace, fs::path unfinished)
    : path_(plain_path(std::move(path))), unfinished_(std::move(unfinished)), replace_(replace), is_kept_(true) {
  check();
  std::error_code error;
  fs::create_directory(unfinished_, error);
  if (error) throw invalid("{} cannot be written: {}", unfinished_.string(), error.message());
}

void OutputFolder::check() const {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path_, error);
  if (fs::exists(status) && !fs::is_directory(status)) throw invalid("{} exists and is no folder", path_.string());
  if (fs::exists(status) && !replace_)
    throw invalid("{} exists; overwrite it with --force or choose another name", path_.string());
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!unfinished_.empty() && !is_kept_) fs::remove_all(unfinished_, ignored);
}

void OutputFolder::write(const std::string& name, std::string_view content) const {
  const fs::path path = unfinished_ / name;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_to("written", path_ / name, errno);
  try {
    write_all(descriptor, content, path_ / name);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (::close(descriptor) != 0) fail_to("written", path_ / name, errno);
}

void OutputFolder::copy(const fs::path& file) const {
  std::error_code error;
  fs::copy_file(file, unfinished_ / file.filename(), error);
  if (error) throw no_resource("{} could not be copied to {}: {}", file.string(), path_.string(), error.message());
}

void OutputFolder::commit() {
  sync_folder(unfinished_);
  if (rename_new(unfinished_, path_)) {
    unfinished_.clear();
  } else if (errno != EEXIST || !replace_ || !exchange(unfinished_, path_)) {
    fail_to("completed", path_, errno);
  }
  // After an exchange, the older folder has the other name.
  is_kept_ = false;
  sync_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

}  // namespace quire
