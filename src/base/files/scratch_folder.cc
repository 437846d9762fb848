#include "base/files/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quire {

ScratchFolder::ScratchFolder(std::string_view purpose) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) throw invalid("there is no temporary folder: {}; set TMPDIR", error.message());
  std::string name = (folder / fmt::format("quire-{}-XXXXXX", purpose)).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw invalid("no folder can be made in {}: {}; set TMPDIR", folder.string(), std::strerror(errno));
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace quire
