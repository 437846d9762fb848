#include "cli/output_file.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace quire {

void check_output(const std::string& path, const std::string& flag, bool force) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return;
  const std::string spelled = flag.empty() ? path : flag + " " + path;
  if (!std::filesystem::is_regular_file(status)) throw invalid("{} is not a regular file", spelled);
  if (!force)
    throw invalid("{} exists; overwrite it with --force or choose another {}", path, flag.empty() ? "name" : flag);
}

void check_output_folder(const std::string& path, const std::filesystem::path& input, bool force) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) throw invalid("{} exists and is no directory; choose another name", path);
  const fs::path output = fs::canonical(path, error);
  for (fs::path at = fs::canonical(input, error);; at = at.parent_path()) {
    if (at == output) throw invalid("{} is, or contains, the model that is read; choose another name", path);
    if (at == at.parent_path()) break;
  }
  if (!force) throw invalid("{} exists; overwrite it with --force or choose another name", path);
  if (!fs::exists(output / "config.json", error))
    throw invalid("{} is no model's directory (it has no config.json), so --force does not replace it", path);
}

}  // namespace quire
