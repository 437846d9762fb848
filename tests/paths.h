// Where tests find data.
#pragma once

#include <filesystem>

namespace quire {

std::filesystem::path source_dir();  // this checkout
std::filesystem::path
shared_dir();  // reference data outside the repository; tests that need it skip where it is missing

}  // namespace quire
