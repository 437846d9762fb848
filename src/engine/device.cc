#include "engine/device.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/static_program.h"
#include "base/text/quote.h"
#include "ops/backend_version.h"

namespace quire {
namespace {

std::vector<std::filesystem::path> places_of(const std::string& file) {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  return {folder / file, folder / "../lib/quire" / file};
}

}  // namespace

std::optional<DeviceName> parse_device_name(std::string_view text) {
  const size_t colon = text.find(':');
  DeviceName name{.library = std::string(text.substr(0, colon))};
  if (name.library.empty() ||
      name.library.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos)
    return {};
  if (colon == std::string_view::npos) return name;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, name.index);
  if (error != std::errc() || stop != end || name.index < 0) return {};
  return name;
}

std::unique_ptr<Backend> open_device(std::string_view name, CpuBackend&) {
  if (name == "cpu") return nullptr;
  const std::optional<DeviceName> device = parse_device_name(name);
  if (!device) throw invalid("--device {} is not a device; use cpu, cuda or cuda:N", quote(name));
  std::string library = device->library;
  std::ranges::replace(library, '-', '_');
  const std::string file = "libquire_" + library + ".so";
  if (is_static_program())
    throw unsupported(
        "--device {} needs {}, which a statically linked program cannot load; build Quire from source with "
        "./dev build {}",
        name, file, library);
  for (const std::filesystem::path& place : places_of(file)) {
    if (!std::filesystem::exists(place)) continue;
    void* const handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw unsupported("--device {}: {} cannot be loaded: {}", name, place.string(), ::dlerror());
    const auto open = reinterpret_cast<OpenBackend>(::dlsym(handle, "quire_open_backend"));
    Backend* const backend = open ? open(device->index, kBackendVersion) : nullptr;
    if (!backend)
      throw unsupported("--device {}: {} was built for another version of Quire; build both together", name,
                        place.string());
    return std::unique_ptr<Backend>(backend);
  }
  throw not_found(
      "--device {} needs {}, which is neither beside the program nor in ../lib/quire; build it with ./dev build {}",
      name, file, library);
}

}  // namespace quire
