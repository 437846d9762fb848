#include "plan/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "engine/dtype_names.h"
#include "json/field.h"
#include "plan/hardware_json.h"  // generated from hardware.json

namespace quire {
namespace {

constexpr size_t kMostHardwareBytes = size_t{1} << 20, kMostMachinesOfFile = 1024;

// 1 kB to 1 EB, and likewise for rates: what is beyond is a mistake in units.
double positive(const JsonField& object, std::string_view key) { return object.at(key).number(1e-6, 1e9); }

Hardware read_machine(const JsonField& field) {
  Hardware h;
  h.name = field.get<std::string>("name");
  h.title = field.get_or<std::string>("title", h.name);
  h.memory = positive(field, "memory_gb") * 1e9;
  h.rates.bandwidth = positive(field, "bandwidth_gbs") * 1e9;
  const JsonField tops = field.at("tops").object();
  for (const auto& [key, rate] : tops.members()) {
    const auto unit = std::ranges::find(kUnits, key, [](Activations a) { return name(a); });
    if (unit == kUnits.end()) throw rate.error("is not a type of products; known: f32, bf16, int8, fp8");
    h.rates.multiply_adds[static_cast<size_t>(*unit)] = rate.number(1e-6, 1e9) * 1e12 / 2;
  }
  auto& rates = h.rates.multiply_adds;
  if (rates[0] == 0) throw tops.error("must have f32, for what is not computed in fewer bits");
  // A machine without a unit computes in the next wider type.
  const auto fall_back = [&](Activations unit, Activations wider) {
    double& rate = rates[static_cast<size_t>(unit)];
    if (rate == 0) rate = rates[static_cast<size_t>(wider)];
  };
  fall_back(Activations::kBf16, Activations::kF32);
  fall_back(Activations::kInt8, Activations::kBf16);
  fall_back(Activations::kFp8, Activations::kBf16);
  const JsonField activations = field.at("activations");
  const auto unit = std::ranges::find(kUnits, activations.string(), [](Activations a) { return name(a); });
  if (unit == kUnits.end()) throw activations.error("must be f32, bf16, int8 or fp8");
  h.activations = *unit;
  if (const auto price = field.find("price_per_hour")) h.price_per_hour = price->number(0, 1e9);
  h.source = field.get_or<std::string>("source", "");
  return h;
}

}  // namespace

std::vector<Hardware> parse_hardware(std::string_view text, const std::string& file) {
  const auto document = JsonField::parse(text, file);
  std::vector<Hardware> machines;
  if (!document.json().is_array()) return {read_machine(document.object())};
  for (const JsonField& machine : document.elements(kMostMachinesOfFile)) machines.push_back(read_machine(machine));
  return machines;
}

const std::vector<Hardware>& known_hardware() {
  static const std::vector<Hardware> machines = parse_hardware(kHardwareJson, "hardware.json");
  return machines;
}

Hardware find_hardware(const std::string& name) {
  const std::vector<Hardware>& known = known_hardware();
  const auto found = std::ranges::find(known, name, &Hardware::name);
  if (found != known.end()) return *found;
  std::error_code ignored;
  if (std::filesystem::exists(name, ignored)) {
    const std::vector<Hardware> machines = parse_hardware(read_text_file(name, kMostHardwareBytes), name);
    if (machines.size() != 1)
      throw invalid("{} describes {} machines; a file for --hardware describes one", name, machines.size());
    return machines.front();
  }
  std::vector<std::string> names{"this"};
  for (const Hardware& h : known) names.push_back(h.name);
  throw not_found("{} is neither a known machine nor a file.{} Known: {}", quote(name), did_you_mean(name, names),
                  fmt::join(names, ", "));
}

Hardware times(Hardware hardware, int devices) {
  if (devices == 1) return hardware;
  hardware.title = fmt::format("{} x {}", devices, hardware.title);
  hardware.memory *= devices;
  hardware.rates.bandwidth *= devices;
  for (double& rate : hardware.rates.multiply_adds) rate *= devices;
  hardware.price_per_hour *= devices;
  return hardware;
}

}  // namespace quire
