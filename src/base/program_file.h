// The file that Quire's code was loaded from. It tells builds apart, and plugins are looked for beside it.
#pragma once

#include <filesystem>

namespace quire {

// The program; or the shared library, as the Python module, if Quire is part of one.
std::filesystem::path program_file();

}  // namespace quire
