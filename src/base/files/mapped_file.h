// Files of models: mapped read-only into memory, or read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files/fault_guard.h"
#include "base/files/file_lease.h"

namespace quire {

// Owns the mapping; the span is valid as long as the object, and after moves. An empty file has an empty span.
// Throws Error (kNotFound, kInvalid) naming the path if the file cannot be opened, is not a regular file or cannot be
// mapped.
//
// Another program may write to the file or cut it at any time. The mapped bytes may then change between two reads, and
// bytes that were cut off read as zeros. So copy with read() what you check before you use it, and call
// check_unchanged() after you have read the mapping.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Copies bytes of the file, from `offset` on, without the mapping. Throws Error if the file has become shorter, or the
  // disk cannot read it.
  void read(size_t offset, std::span<std::byte> to) const;
  // Throws Error (kInvalid) if the file has been written to or cut since it was opened, or the disk could not read it.
  void check_unchanged() const;
  // Keeps the mapped bytes as they are, from now on: a program that would change the file waits until they are copied
  // into this process's memory. Returns false if the system does not allow that.
  bool hold_content();
  // Says that nobody will call check_unchanged() any more: a page that the disk cannot read ends the process from now on,
  // instead of reading as zeros.
  void stop_checking() { guard_.reset(); }
  // How the file will be read: kRandom keeps the system from reading ahead.
  enum class Access : uint8_t { kUsual, kRandom };
  void advise(Access access) const;
  // Drops the file's pages from the process's memory. They stay in the page cache while there is room, so reading them
  // again is cheap.
  void release() const;
  int64_t modified() const { return modified_; }  // when it was opened: ns since the epoch

 private:
  void close() noexcept;

  std::filesystem::path path_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ = 0;
  std::unique_ptr<FaultGuard> guard_;
  std::unique_ptr<FileLease> lease_;
};

inline void check_unchanged(std::span<const MappedFile> files) {
  for (const MappedFile& file : files) file.check_unchanged();
}

// Whether a name from a file stays in its folder: neither . nor .., no separators, not empty.
bool is_plain_file_name(std::string_view name);

// Throws Error if `begin`, the file's first bytes, are those of a git-lfs pointer, which stands for a file that was not
// downloaded.
void refuse_lfs_pointer(std::span<const std::byte> begin, const std::string& file);

// The whole file as a string, at most `limit` bytes; larger files and git-lfs pointers are an Error.
std::string read_text_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);

}  // namespace quire
