// A private folder for files that a command makes and needs no longer than it runs.
#pragma once

#include <filesystem>
#include <string_view>

namespace quire {

// In the system's temporary folder ($TMPDIR); removed with all that is in it when the object dies.
class ScratchFolder {
 public:
  // purpose: part of its name. Throws Error: the temporary folder cannot be written.
  explicit ScratchFolder(std::string_view purpose);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace quire
