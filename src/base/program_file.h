// The file that the running code of Quire is in: what tells two builds apart, and beside which its libraries lie.
#pragma once

#include <filesystem>

namespace quire {

// The program; or the shared library, as the Python module, if Quire is part of one.
std::filesystem::path program_file();

}  // namespace quire
