// The only test source that is compiled with the checkout's path, so that a compiler cache serves every checkout.
#include "paths.h"

namespace quire {

std::filesystem::path source_dir() { return QUIRE_SOURCE_DIR; }
std::filesystem::path shared_dir() { return source_dir().parent_path() / "shared"; }

}  // namespace quire
