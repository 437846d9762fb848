// Reference data that is stored whole or compressed.
#pragma once

#include <filesystem>
#include <string>

#include "base/files/gunzip.h"
#include "base/files/mapped_file.h"

namespace quire {

// The content of a file, or what PATH.gz unpacks to.
inline std::string read_packed(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return read_text_file(path);
  const MappedFile file(path.string() + ".gz");
  return gunzip(file.bytes(), file.path().string());
}

}  // namespace quire
