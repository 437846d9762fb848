// Whether mapped files can be held (MappedFile::hold_content()) where tests write temporary files.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/files/mapped_file.h"

namespace quire {

inline bool has_leases() {
  const auto path = std::filesystem::temp_directory_path() / ("quire-lease-" + std::to_string(::getpid()));
  std::ofstream(path) << "text";
  const bool held = MappedFile(path).hold_content();
  std::filesystem::remove(path);
  return held;
}

}  // namespace quire
