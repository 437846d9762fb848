// A folder that appears under its name only when it is complete.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace quire {

// Until commit() the folder has a name of its own next to the final one, NAME.tmp-XXXXXX, and is removed if the object dies
// earlier. Throws Error (kInvalid, kResource) naming the folder: not writable, disk full.
class OutputFolder {
 public:
  // replace: what the name stands for now may be replaced. Throws Error if something is there and may not be, or is no
  // folder.
  OutputFolder(std::filesystem::path path, bool replace);
  // Until commit() it is `unfinished`, on the same disk. That folder is continued if it exists, and kept if the object dies.
  OutputFolder(std::filesystem::path path, bool replace, std::filesystem::path unfinished);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Where files are written, and can be read before the folder is complete.
  const std::filesystem::path& unfinished_path() const { return unfinished_; }
  // Writes a file of the folder, whole and to the disk.
  void write(const std::string& name, std::string_view content) const;
  // Copies a file, whose last part of the name it keeps.
  void copy(const std::filesystem::path& file) const;
  // Gives the folder its name. What had the name before is removed, after the exchange.
  void commit();

 private:
  void check() const;

  std::filesystem::path path_, unfinished_;
  bool replace_, is_kept_ = false;
};

}  // namespace quire
