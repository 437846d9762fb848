// Where tests find data.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace quire {

std::filesystem::path source_dir();  // this checkout

// Reference data of the repository.
std::filesystem::path golden_dir();

// Further reference data, next to the checkout: large, or not ours to distribute. Tests must not need it.
std::filesystem::path shared_dir();

// The folders of this name under golden_dir() and, where it exists, shared_dir()/golden.
std::vector<std::filesystem::path> golden_folders(std::string_view name);

}  // namespace quire
