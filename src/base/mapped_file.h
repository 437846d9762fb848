// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// Owns the mapping; the span is valid as long as the object, and after moves. An empty file has an empty span.
// Throws Error (kNotFound, kInvalid) naming the path if the file cannot be opened, is not a regular file or cannot be
// mapped.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // How the file will be read: kRandom keeps the system from reading ahead.
  enum class Access : uint8_t { kUsual, kRandom };
  void advise(Access access) const;
  // Drops the file's pages from the process's memory. They stay in the page cache while there is room, so reading them
  // again is cheap.
  void release() const;
  int64_t modified() const { return modified_; }  // when it was opened: ns since the epoch

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ = 0;
};

// Whether a name from a file stays in its folder: neither . nor .., no separators, not empty.
bool is_plain_file_name(std::string_view name);

// The whole file as a string, at most `limit` bytes; larger files are an Error.
std::string read_text_file(const std::filesystem::path& path, size_t limit = size_t{1} << 30);

}  // namespace quire
