#include "engine/device.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

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

std::vector<std::string> device_names(const EngineOptions& o) {
  std::vector<std::string> names;
  std::vector<DeviceName> parsed;
  for (size_t begin = 0; begin <= o.device.size();) {
    const size_t end = std::min(o.device.find(',', begin), o.device.size());
    names.push_back(o.device.substr(begin, end - begin));
    const std::optional<DeviceName> name = parse_device_name(names.back());
    if (!name) throw invalid("--device {} is not a device; use cpu, cuda or cuda:N", quote(names.back()));
    parsed.push_back(*name);
    begin = end + 1;
  }
  for (size_t i = 0; i < parsed.size(); ++i) {
    if (parsed[i].library != parsed[0].library)
      throw invalid("--device {} names devices of several kinds, {} and {}; give one kind", o.device, names[0],
                    names[i]);
    for (size_t j = 0; j < i; ++j)
      if (parsed[i].index == parsed[j].index) throw invalid("--device {} names {} twice", o.device, names[i]);
  }
  const int ranks = o.device == "cpu" ? 1 : o.tensor_parallel_size;
  if (names.size() == 1 && ranks > 1 && o.device == parsed[0].library) {
    names.clear();
    for (int rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("{}:{}", o.device, rank));
  }
  if (std::cmp_not_equal(names.size(), ranks))
    throw invalid("--device {} names {} device{}, but --tensor-parallel-size is {}; name as many, or give --device {}",
                  o.device, names.size(), names.size() == 1 ? "" : "s", ranks, parsed[0].library);
  return names;
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
