#include "base/files/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.h"

namespace quire {

void write_whole_file(const std::filesystem::path& path, std::string_view content) {
  const std::string unfinished = path.string() + ".tmp";
  std::FILE* const file = std::fopen(unfinished.c_str(), "wb");
  if (!file) throw invalid("{} cannot be written: {}", unfinished, std::strerror(errno));
  const bool is_written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  int reason = is_written ? 0 : errno;
  // Errors of delayed writes show when the file is closed.
  if (std::fclose(file) != 0 && reason == 0) reason = errno;
  if (reason == 0 && std::rename(unfinished.c_str(), path.c_str()) == 0) return;
  if (reason == 0) reason = errno;
  std::remove(unfinished.c_str());
  throw no_resource("{} could not be written: {}", path.string(), std::strerror(reason));
}

}  // namespace quire
