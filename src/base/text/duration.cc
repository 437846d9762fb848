#include "base/text/duration.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace quire {

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr double kMost = 1e6 * 3.6e6;
  constexpr std::array<std::pair<std::string_view, double>, 6> kUnits{
      {{"h", 3.6e6}, {"m", 6e4}, {"s", 1e3}, {"ms", 1}, {"us", 1e-3}, {"ns", 1e-6}}};
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double total = 0;
  while (!text.empty()) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (error != std::errc() || std::signbit(number) || !std::isfinite(number)) return std::nullopt;
    text = std::string_view(stop, static_cast<size_t>(end - stop));
    const size_t letters = std::min(text.find_first_of("0123456789."), text.size());
    const auto unit = std::ranges::find(kUnits, text.substr(0, letters), &std::pair<std::string_view, double>::first);
    if (unit == kUnits.end()) return std::nullopt;
    total += number * unit->second;
    text.remove_prefix(letters);
  }
  if (total > kMost) return std::nullopt;
  return std::chrono::milliseconds(std::llround(negative ? -total : total));
}

}  // namespace quire
