// Where files of the user belong.
#pragma once

#include <filesystem>

namespace quire {

// $HOME, or where it is unset, empty or relative, the home folder of the user's entry in the password database. Empty if
// that entry is missing too. Callers then write nothing; they never fall back to the current folder.
std::filesystem::path home_folder();

// ~/.cache/quire; empty without a home folder.
std::filesystem::path cache_folder();

}  // namespace quire
