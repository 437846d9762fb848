#include "base/program_file.h"

#include <dlfcn.h>
#include <link.h>

#include "base/static_program.h"

namespace quire {

std::filesystem::path program_file() {
  Dl_info unused;
  link_map* library = nullptr;
  // A program has no name here.
  if (!is_static_program() &&
      ::dladdr1(reinterpret_cast<const void*>(&program_file), &unused, reinterpret_cast<void**>(&library),
                RTLD_DL_LINKMAP) != 0 &&
      library && *library->l_name != '\0')
    return library->l_name;
  return std::filesystem::read_symlink("/proc/self/exe");
}

}  // namespace quire
