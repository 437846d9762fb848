#include "cli/plan/quantities.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <string_view>

namespace quire {
namespace {

constexpr double kLeastSeconds = 1e-6, kMostSeconds = 1e6;

}  // namespace

std::string read_seconds(const std::string& text, double& seconds) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  if (error == std::errc::invalid_argument || (unit != "" && unit != "s" && unit != "ms" && unit != "us"))
    return fmt::format("must be a time such as 500ms or 0.5s, not '{}'", text);
  seconds *= unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 1;
  if (error != std::errc() || !(seconds >= kLeastSeconds && seconds <= kMostSeconds))
    return fmt::format("must be between 1us and {:g}s, not {}", kMostSeconds, text);
  return "";
}

CLI::Validator time_check() {
  return {[](const std::string& text) {
            double seconds = 0;
            return read_seconds(text, seconds);
          },
          "", ""};
}

std::string in_units(double value, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (value >= 999.5 && std::next(unit) != units.end()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, *unit);
}
std::string size_text(double bytes) { return in_units(bytes, {"B", "kB", "MB", "GB", "TB", "PB"}); }
std::string duration_text(double seconds) { return in_units(seconds * 1e6, {"us", "ms", "s"}); }

}  // namespace quire
