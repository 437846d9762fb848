#include "engine/device.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"
#include "base/plugin.h"
#include "base/text/quote.h"
#include "ops/backend_version.h"

namespace quire {
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
  const Plugin plugin(library, "quire_open_backend", fmt::format("--device {}", name), "./dev build " + library);
  Backend* const backend = plugin.function<OpenBackend>()(device->index, kBackendVersion);
  if (!backend) plugin.refuse_version();
  return std::unique_ptr<Backend>(backend);
}

}  // namespace quire
