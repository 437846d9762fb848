#include "load/trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/files/line_file.h"

namespace quire {
namespace {

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03.9799600", optionally followed by "+00:00"; seconds since 1970.
std::optional<double> timestamp(std::string_view text) {
  if (text.size() < 19) return std::nullopt;
  const auto year = number<int>(text.substr(0, 4));
  const auto month = number<unsigned>(text.substr(5, 2)), day = number<unsigned>(text.substr(8, 2));
  const auto hour = number<int>(text.substr(11, 2)), minute = number<int>(text.substr(14, 2));
  std::string_view rest = text.substr(17);
  const auto second = number<double>(rest.substr(0, rest.find_first_of("+Z")));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  return static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count()) * 86400 + *hour * 3600 +
         *minute * 60 + *second;
}

std::optional<TraceRow> azure_row(std::string_view line) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == line.npos || second == line.npos) return std::nullopt;
  const auto at = timestamp(line.substr(0, first));
  const auto input = number<int>(line.substr(first + 1, second - first - 1));
  const auto output = number<int>(line.substr(second + 1));
  if (!at || !input || !output) return std::nullopt;
  return TraceRow{*at, *input, *output, {}};
}

std::optional<TraceRow> mooncake_row(std::string_view line) {
  const auto row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object()) return std::nullopt;
  try {
    return TraceRow{row.at("timestamp").get<double>() / 1000, row.at("input_length").get<int>(),
                    row.at("output_length").get<int>(), row.at("hash_ids").get<std::vector<int64_t>>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<TraceRow> read_trace(const std::string& path) {
  LineFile file(path, "--trace " + path);
  std::vector<TraceRow> rows;
  std::string line;
  while (file.next(line, size_t{16} << 20)) {
    const int n = file.number();
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (n == 1 && line.starts_with("TIMESTAMP,"))) continue;
    const auto row = line.front() == '{' ? mooncake_row(line) : azure_row(line);
    if (!row || row->input_tokens < 0 || row->output_tokens < 0 || !std::isfinite(row->at))
      throw invalid(
          "{}:{}: this line is neither Azure's TIMESTAMP,ContextTokens,GeneratedTokens nor a JSON object of a Mooncake "
          "trace",
          path, n);
    rows.push_back(*row);
  }
  if (rows.empty()) throw invalid("{}: the trace has no requests", path);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return rows;
}

}  // namespace quire
