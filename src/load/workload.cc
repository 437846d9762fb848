#include "load/workload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kMooncakeBlockTokens = 512;

// Streams of random numbers that have nothing to do with each other.
enum class Stream : uint64_t { kArrivals, kPrefix, kBlock, kOwn };

std::mt19937_64 random(uint64_t seed, Stream stream, uint64_t index) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(stream),
                         static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)};
  return std::mt19937_64(sequence);
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03.9799600", with or without "+00:00" behind it; seconds since 1970.
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

std::optional<PlannedRequest> azure_row(std::string_view line) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == line.npos || second == line.npos) return std::nullopt;
  const auto at = timestamp(line.substr(0, first));
  const auto input = number<int>(line.substr(first + 1, second - first - 1));
  const auto output = number<int>(line.substr(second + 1));
  if (!at || !input || !output) return std::nullopt;
  return PlannedRequest{*at, *input, *output, {}};
}

std::optional<PlannedRequest> mooncake_row(std::string_view line) {
  const auto row = nlohmann::json::parse(line, nullptr, false);
  if (!row.is_object()) return std::nullopt;
  try {
    return PlannedRequest{row.at("timestamp").get<double>() / 1000, row.at("input_length").get<int>(),
                          row.at("output_length").get<int>(), row.at("hash_ids").get<std::vector<int64_t>>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<PlannedRequest> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw not_found("{}: cannot be read", path);
  std::vector<PlannedRequest> rows;
  std::string line;
  for (int n = 1; std::getline(file, line); ++n) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (n == 1 && line.starts_with("TIMESTAMP,"))) continue;
    const auto row = line.front() == '{' ? mooncake_row(line) : azure_row(line);
    if (!row || row->input_tokens < 0 || row->output_tokens < 0 || !std::isfinite(row->at))
      throw invalid("{}:{}: neither TIMESTAMP,ContextTokens,GeneratedTokens nor a line of Mooncake's JSON", path, n);
    rows.push_back(*row);
  }
  if (rows.empty()) throw invalid("{}: no requests", path);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return rows;
}

int scaled(int length, double scale) { return std::max(1, static_cast<int>(std::lround(length * scale))); }

// A prompt piece by piece: `emit(stream, index, count)` asks for the first `count` items of a random stream.
template <class Emit>
void prompt_pieces(const Workload& workload, size_t request, const Emit& emit) {
  const PlannedRequest& planned = workload.requests.at(request);
  int left = planned.input_tokens;
  const auto take = [&](Stream stream, uint64_t index, int count) {
    emit(stream, index, std::min(count, left));
    left -= std::min(count, left);
  };
  take(Stream::kPrefix, 0, workload.shared_prefix);
  for (const int64_t block : planned.blocks) take(Stream::kBlock, static_cast<uint64_t>(block), workload.block_tokens);
  take(Stream::kOwn, request, left);
}

constexpr std::array<std::string_view, 64> kWords = {
    "time",   "year",    "people",  "way",     "day",      "man",     "thing",      "woman",  "life",  "child",
    "world",  "state",   "family",  "group",   "country",  "problem", "hand",       "part",   "place", "case",
    "week",   "company", "system",  "program", "question", "work",    "government", "number", "night", "point",
    "home",   "water",   "room",    "mother",  "area",     "money",   "story",      "fact",   "month", "lot",
    "right",  "study",   "book",    "eye",     "job",      "word",    "business",   "issue",  "side",  "kind",
    "head",   "house",   "service", "friend",  "father",   "power",   "hour",       "game",   "line",  "end",
    "member", "law",     "car",     "city"};

}  // namespace

Workload plan_workload(const WorkloadOptions& o) {
  Workload workload;
  workload.seed = o.seed;
  workload.shared_prefix = o.shared_prefix;
  if (o.trace.empty()) {
    workload.requests.assign(static_cast<size_t>(o.requests), {0, o.input_tokens, o.output_tokens, {}});
    if (o.shared_prefix > o.input_tokens)
      throw invalid("--shared-prefix {}: more than the prompts' {} tokens (--input)", o.shared_prefix, o.input_tokens);
  } else {
    auto rows = read_trace(o.trace);
    if (static_cast<size_t>(o.skip) >= rows.size())
      throw invalid("--skip {}: {} has {} requests", o.skip, o.trace, rows.size());
    rows.erase(rows.begin(), rows.begin() + o.skip);
    if (static_cast<size_t>(o.requests) > rows.size())
      throw invalid("--requests {}: {} has {} requests from --skip {} on", o.requests, o.trace, rows.size(), o.skip);
    if (o.requests > 0) rows.resize(static_cast<size_t>(o.requests));
    const double start = rows.front().at;
    workload.block_tokens = scaled(kMooncakeBlockTokens, o.length_scale);
    for (PlannedRequest& row : rows) {
      row.at = (row.at - start) * o.time_scale;
      row.input_tokens = scaled(row.input_tokens, o.length_scale) + o.shared_prefix;
      row.output_tokens = scaled(row.output_tokens, o.length_scale);
      const auto cut = [](int& length, int most) {
        const bool longer = most > 0 && length > most;
        if (longer) length = most;
        return longer;
      };
      const bool input_cut = cut(row.input_tokens, o.max_input_tokens);
      if (cut(row.output_tokens, o.max_output_tokens) || input_cut) ++workload.shortened;
    }
    workload.requests = std::move(rows);
  }
  if (o.rate > 0) {
    auto generator = random(o.seed, Stream::kArrivals, 0);
    double at = 0;
    for (PlannedRequest& request : workload.requests) {
      request.at = at;
      // 53 bits make a double in [0, 1); the standard library's own distributions differ between libraries.
      at -= std::log1p(-static_cast<double>(generator() >> 11) * 0x1p-53) / o.rate;
    }
  }
  return workload;
}

std::vector<int32_t> prompt_tokens(const Workload& workload, size_t request, int32_t first_id, int32_t last_id) {
  std::vector<int32_t> tokens;
  const auto range = static_cast<uint64_t>(last_id - first_id + 1);
  prompt_pieces(workload, request, [&](Stream stream, uint64_t index, int count) {
    auto generator = random(workload.seed, stream, index);
    for (int i = 0; i < count; ++i) tokens.push_back(first_id + static_cast<int32_t>(generator() % range));
  });
  return tokens;
}

std::string prompt_words(const Workload& workload, size_t request) {
  std::string text;
  prompt_pieces(workload, request, [&](Stream stream, uint64_t index, int count) {
    auto generator = random(workload.seed, stream, index);
    for (int i = 0; i < count; ++i) {
      if (!text.empty()) text += ' ';
      text += kWords[generator() % kWords.size()];
    }
  });
  return text;
}

}  // namespace quire
