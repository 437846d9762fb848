#include "base/files/home_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace quire {

std::filesystem::path home_folder() {
  if (const char* home = std::getenv("HOME"); home && std::filesystem::path(home).is_absolute()) return home;
  passwd entry{}, *found = nullptr;
  std::array<char, 16384> names;  // what the entry's strings may take
  if (::getpwuid_r(::getuid(), &entry, names.data(), names.size(), &found) != 0 || !found) return {};
  const std::filesystem::path home = found->pw_dir ? found->pw_dir : "";
  return home.is_absolute() ? home : std::filesystem::path();
}

std::filesystem::path cache_folder() {
  const std::filesystem::path home = home_folder();
  return home.empty() ? home : home / ".cache/quire";
}

}  // namespace quire
