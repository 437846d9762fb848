#include "base/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/program_file.h"
#include "base/static_program.h"

namespace quire {
namespace {

std::vector<std::filesystem::path> places_of(const std::string& file) {
  const std::filesystem::path folder = program_file().parent_path();
  return {folder / file, folder / "../lib/quire" / file};
}

}  // namespace

Plugin::Plugin(std::string_view name, const char* symbol, std::string_view wanted_by, std::string_view build)
    : wanted_by_(wanted_by) {
  const std::string file = fmt::format("libquire_{}.so", name);
  if (is_static_program())
    throw unsupported("{} needs {}, which a statically linked program cannot load; build Quire from source with {}",
                      wanted_by_, file, build);
  for (const std::filesystem::path& place : places_of(file)) {
    if (!std::filesystem::exists(place)) continue;
    path_ = place.string();
    void* const handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw unsupported("{}: {} cannot be loaded: {}", wanted_by_, path_, ::dlerror());
    symbol_ = ::dlsym(handle, symbol);
    if (!symbol_) refuse_version();
    return;
  }
  throw not_found("{} needs {}, which is neither beside the program nor in ../lib/quire; build it with {}", wanted_by_,
                  file, build);
}

void Plugin::refuse_version() const {
  throw unsupported("{}: {} was built for another version of Quire; build both together", wanted_by_, path_);
}

}  // namespace quire
