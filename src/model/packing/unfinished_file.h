// Files of the pack cache while they are written: they appear under their names only when they are whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace quire {

// A file of a name of its own, open for reading and writing, which is removed unless it was renamed. Nothing here throws:
// functions return 0 or an error of errno.
class UnfinishedFile {
 public:
  // In this folder, readable by its user alone. A lock marks the file as not abandoned.
  explicit UnfinishedFile(const std::filesystem::path& folder);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  int error() const { return error_; }  // of the constructor
  int fd() const { return fd_; }
  // Allocates the space, if the file system can. Fails if the disk or a limit has no room for so many bytes.
  int reserve(size_t bytes) const;
  int write_at(std::span<const std::byte> bytes, size_t offset) const;
  int rename_to(const std::string& path);
  // From now on the file has no name, and ends with the last descriptor of it.
  int remove_name();
  // The descriptor, which is the caller's from now on.
  int release();

 private:
  std::string path_;  // empty: renamed or removed
  int fd_ = -1, error_ = 0;
};

// Creates a folder for such files, for its user alone, and removes the files in it that nobody will finish. Returns 0 or an
// error of errno.
int open_pack_folder(const std::string& folder);

// What a user can do about an error of errno: "free some space".
const char* remedy(int error);

}  // namespace quire
