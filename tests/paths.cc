// The only test source compiled with the checkout's path, so that a compiler cache serves every checkout.
#include "paths.h"

namespace quire {

std::filesystem::path source_dir() { return QUIRE_SOURCE_DIR; }
std::filesystem::path golden_dir() { return source_dir() / "tests/golden/data"; }
std::filesystem::path shared_dir() { return source_dir().parent_path() / "shared"; }

std::vector<std::filesystem::path> golden_folders(std::string_view name) {
  std::vector<std::filesystem::path> folders{golden_dir() / name};
  if (auto outside = shared_dir() / "golden" / name; std::filesystem::exists(outside)) folders.push_back(outside);
  return folders;
}

}  // namespace quire
