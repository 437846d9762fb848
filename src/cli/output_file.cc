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

}  // namespace quire
