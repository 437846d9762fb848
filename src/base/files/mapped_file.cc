#include "base/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/memory.h"

namespace quire {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

// Opens a regular file, or throws Error.
int open_regular(const std::filesystem::path& path, struct stat& info) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw not_found("cannot open {}: {}", path.string(), std::strerror(errno));
  const int error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (error == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  if (error != 0) throw invalid("cannot stat {}: {}", path.string(), std::strerror(error));
  throw invalid("{} is not a regular file", path.string());
}

int64_t modified_at(const struct stat& info) {
  return info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
}

// Bytes read: fewer than wanted only at the end of the file. Throws Error.
size_t read_at(int fd, size_t offset, std::span<std::byte> to, const std::filesystem::path& path) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw invalid("cannot read {}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Error cut_off(const std::filesystem::path& path, size_t had, size_t has) {
  return invalid("{} was cut from {} to {} bytes while it was read; load it again once it is complete", path.string(),
                 had, has);
}

// Replaces mapped pages of a file by copies of them at the same address. A page that a private mapping has written to would
// not do: it goes when the file is cut.
void copy_pages(std::byte* data, size_t size) {
  void* const area = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return;
  ::madvise(area, size + kHugePage, MADV_HUGEPAGE);
  // Huge pages move only between addresses that are alike.
  const auto place = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % kHugePage; };
  std::byte* const copy = static_cast<std::byte*>(area) + (place(data) + kHugePage - place(area)) % kHugePage;
  std::memcpy(copy, data, size);
  ::mprotect(copy, size, PROT_READ);
  ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, data);
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  struct stat info {};
  fd_ = open_regular(path_, info);
  size_ = static_cast<size_t>(info.st_size);
  modified_ = modified_at(info);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close();
    throw invalid("cannot map {}: {}", path_.string(), std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(mapped);
  guard_ = std::make_unique<FaultGuard>(data_, size_);
}

MappedFile::~MappedFile() { close(); }

void MappedFile::close() noexcept {
  lease_.reset();
  guard_.reset();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_(other.modified_),
      guard_(std::move(other.guard_)),
      lease_(std::move(other.lease_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  std::swap(guard_, other.guard_);
  std::swap(lease_, other.lease_);
  return *this;
}

void MappedFile::read(size_t offset, std::span<std::byte> to) const {
  const size_t done = read_at(fd_, offset, to, path_);
  if (done < to.size()) throw cut_off(path_, size_, offset + done);
}

void MappedFile::check_unchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw invalid("cannot stat {}: {}", path_.string(), std::strerror(errno));
  const auto size = static_cast<size_t>(info.st_size);
  if (size < size_) throw cut_off(path_, size_, size);
  if (size > size_ || modified_at(info) != modified_)
    throw invalid("{} was changed while it was read; load it again once nothing writes to it", path_.string());
  if (guard_ && guard_->faulted()) throw invalid("{} cannot be read: the disk reports an error", path_.string());
}

bool MappedFile::hold_content() {
  if (data_ == nullptr || lease_) return true;
  auto* const data = const_cast<std::byte*>(data_);
  lease_ = FileLease::take(fd_, [data, size = size_] { copy_pages(data, size); });
  return lease_ != nullptr;
}

void MappedFile::advise(Access access) const {
  if (data_ == nullptr) return;
  ::madvise(const_cast<std::byte*>(data_), size_, access == Access::kRandom ? MADV_RANDOM : MADV_NORMAL);
}

void MappedFile::release() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

void refuse_lfs_pointer(std::span<const std::byte> begin, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  for (const std::string_view host : {"git-lfs", "hawser"}) {
    if (text.starts_with(fmt::format("version https://{}.github.com/spec/", host)))
      throw invalid(
          "{} is a git-lfs pointer, not the file itself: run `git lfs pull` in its folder, or download the file", file);
  }
}

std::string read_text_file(const std::filesystem::path& path, size_t limit) {
  struct stat info {};
  const Descriptor file{open_regular(path, info)};
  const auto size = static_cast<size_t>(info.st_size);
  if (size > limit) throw invalid("{} has {} bytes; at most {} are allowed", path.string(), size, limit);
  std::string text(size, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  const size_t done = read_at(file.fd, 0, bytes, path);
  if (done < size) throw cut_off(path, size, done);
  refuse_lfs_pointer(bytes, path.string());
  return text;
}

}  // namespace quire
