#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/error.h"

namespace quire {
namespace {

// Cached tokens tolerated in a cold prompt, besides unplanned ones such as a chat template's: a begin-of-text token, a
// page that matches by chance.
constexpr double kColdShare = 0.02;
constexpr int kColdTokens = 16;
// A warm prompt's hit may end at a page boundary: vLLM's largest pages on CPUs hold 128 tokens.
constexpr int kPageSlack = 128;

double time_to_first_token(const RequestRecord& r) { return r.pieces.front() - r.intended; }

std::optional<double> time_per_token(const RequestRecord& r) {
  if (r.output_tokens < 2) return std::nullopt;
  return (r.pieces.back() - r.pieces.front()) / (r.output_tokens - 1);
}

bool is_good(const RequestRecord& r, const ServiceLevel& level) {
  const auto within = [](std::optional<double> value, std::optional<double> limit) {
    return !limit || !value || *value <= *limit;
  };
  return within(time_to_first_token(r), level.ttft) && within(time_per_token(r), level.tpot) &&
         within(r.finished - r.intended, level.e2e);
}

// A run that mixes cold and warm prompts measures neither.
std::optional<std::string> cache_violation(const std::vector<RequestRecord>& records, CacheState declared,
                                           int shared_prefix) {
  int wrong = 0, known = 0;
  for (const RequestRecord& r : records) {
    if (!r.failure.empty() || !r.cached_tokens) continue;
    ++known;
    const int cached = *r.cached_tokens;
    const int unplanned = std::max(0, r.input_tokens - r.planned_input);
    const double may = unplanned + std::max<double>(kColdTokens, kColdShare * r.input_tokens);
    if (declared == CacheState::kCold) wrong += cached > may;
    if (declared == CacheState::kWarm) wrong += cached < shared_prefix - std::max(kPageSlack, shared_prefix / 20);
  }
  if (wrong == 0) return std::nullopt;
  return declared == CacheState::kCold
             ? fmt::format(
                   "{} of {} prompts were cached although the run was declared cold: use another --seed, restart the "
                   "server or disable its prefix cache (or accept any state with --cache any)",
                   wrong, known)
             : fmt::format(
                   "{} of {} prompts missed the shared prefix of {} tokens although the run was declared warm: check "
                   "that "
                   "the server's prefix cache is on and large enough (or accept any state with --cache any)",
                   wrong, known, shared_prefix);
}

nlohmann::ordered_json to_json(const Spread& s) {
  return {{"samples", s.samples}, {"mean", 1e3 * s.mean}, {"p50", 1e3 * s.p50},
          {"p95", 1e3 * s.p95},   {"p99", 1e3 * s.p99},   {"max", 1e3 * s.max}};
}

double per_second(double amount, const LoadReport& r) { return r.seconds > 0 ? amount / r.seconds : 0; }

}  // namespace

ServiceLevel parse_service_level(const std::string& text) {
  ServiceLevel level;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    std::optional<double>* limit = name == "ttft"   ? &level.ttft
                                   : name == "tpot" ? &level.tpot
                                   : name == "e2e"  ? &level.e2e
                                                    : nullptr;
    const std::string_view value = equals == part.npos ? std::string_view() : part.substr(equals + 1);
    double number = 0;
    const auto [unit, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const std::string_view suffix(unit, static_cast<size_t>(value.data() + value.size() - unit));
    if (!limit || error != std::errc() || !(number > 0) || (suffix != "ms" && suffix != "s"))
      throw invalid("--slo {} must have the form ttft=500ms,tpot=50ms,e2e=10s", text);
    *limit = suffix == "ms" ? number / 1000 : number;
  }
  return level;
}

Spread spread_of(std::vector<double> samples) {
  Spread s;
  s.samples = samples.size();
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  const auto percentile = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(samples.size())));
    return samples[std::max<size_t>(rank, 1) - 1];
  };
  s.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  s.p50 = percentile(0.50);
  s.p95 = percentile(0.95);
  s.p99 = percentile(0.99);
  s.max = samples.back();
  return s;
}

LoadReport summarize(const std::vector<RequestRecord>& records, const ServiceLevel& level, CacheState declared,
                     int shared_prefix) {
  LoadReport report;
  std::vector<double> ttft, tpot, itl, e2e, late;
  double first = INFINITY, last = 0;
  if (level.given()) report.good = 0;
  for (const RequestRecord& r : records) {
    ++report.requests;
    first = std::min(first, r.intended);
    last = std::max(last, r.finished);
    late.push_back(r.sent - r.intended);
    if (!r.failure.empty()) {
      ++report.failed;
      ++report.failures[r.failure];
      continue;
    }
    ++report.completed;
    report.input_tokens += r.input_tokens;
    report.output_tokens += r.output_tokens;
    report.pieces += static_cast<int64_t>(r.pieces.size());
    if (r.cached_tokens) report.cached_tokens = report.cached_tokens.value_or(0) + *r.cached_tokens;
    if (!r.cached_tokens && declared != CacheState::kAny) ++report.cache_unverified;
    ttft.push_back(time_to_first_token(r));
    if (const auto time = time_per_token(r)) tpot.push_back(*time);
    for (size_t i = 1; i < r.pieces.size(); ++i) itl.push_back(r.pieces[i] - r.pieces[i - 1]);
    e2e.push_back(r.finished - r.intended);
    if (report.good && is_good(r, level)) ++*report.good;
  }
  if (!records.empty()) report.seconds = last - first;
  report.ttft = spread_of(std::move(ttft));
  report.tpot = spread_of(std::move(tpot));
  report.itl = spread_of(std::move(itl));
  report.e2e = spread_of(std::move(e2e));
  report.late = spread_of(std::move(late));
  report.cache_violation = cache_violation(records, declared, shared_prefix);
  return report;
}

nlohmann::ordered_json to_json(const LoadReport& r) {
  nlohmann::ordered_json json = {
      {"requests", r.requests},
      {"completed", r.completed},
      {"failed", r.failed},
      {"failures", r.failures},
      {"seconds", r.seconds},
      {"input_tokens", r.input_tokens},
      {"output_tokens", r.output_tokens},
      {"pieces", r.pieces},
      {"cached_tokens", r.cached_tokens ? nlohmann::ordered_json(*r.cached_tokens) : nlohmann::ordered_json()},
      {"cache_violation", r.cache_violation ? nlohmann::ordered_json(*r.cache_violation) : nlohmann::ordered_json()},
      {"cache_unverified", r.cache_unverified},
      {"requests_per_second", per_second(r.completed, r)},
      {"input_tokens_per_second", per_second(static_cast<double>(r.input_tokens), r)},
      {"output_tokens_per_second", per_second(static_cast<double>(r.output_tokens), r)}};
  if (r.good) {
    json["good_requests"] = *r.good;
    json["good_requests_per_second"] = per_second(*r.good, r);
  }
  json["ttft_ms"] = to_json(r.ttft);
  json["tpot_ms"] = to_json(r.tpot);
  json["itl_ms"] = to_json(r.itl);
  json["e2e_ms"] = to_json(r.e2e);
  json["sent_late_ms"] = to_json(r.late);
  return json;
}

std::string to_text(const LoadReport& r) {
  std::string out = fmt::format("requests   {} completed, {} failed in {:.2f} s: {:.2f} per second\n", r.completed,
                                r.failed, r.seconds, per_second(r.completed, r));
  for (const auto& [reason, count] : r.failures) out += fmt::format("  {:6} x {}\n", count, reason);
  out += fmt::format("tokens in  {}, {:.1f} per second; ", r.input_tokens,
                     per_second(static_cast<double>(r.input_tokens), r));
  out += r.cached_tokens ? fmt::format("{} cached ({:.1f} %)\n", *r.cached_tokens,
                                       100.0 * static_cast<double>(*r.cached_tokens) /
                                           static_cast<double>(std::max<int64_t>(1, r.input_tokens)))
                         : "the server does not report cached tokens\n";
  out += fmt::format("tokens out {}, {:.1f} per second", r.output_tokens,
                     per_second(static_cast<double>(r.output_tokens), r));
  out += r.pieces == r.output_tokens ? "\n" : fmt::format(", in {} pieces\n", r.pieces);
  if (r.good) {
    out += fmt::format("goodput    {} of {} within the service level: {:.2f} per second\n", *r.good, r.requests,
                       per_second(*r.good, r));
  }
  out +=
      fmt::format("\n{:<12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}\n", "ms", "mean", "p50", "p95", "p99", "max", "samples");
  for (const auto& [name, s] :
       {std::pair{"TTFT", r.ttft}, {"TPOT", r.tpot}, {"ITL", r.itl}, {"end to end", r.e2e}, {"sent late", r.late}}) {
    out += fmt::format("{:<12}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>9}\n", name, 1e3 * s.mean, 1e3 * s.p50,
                       1e3 * s.p95, 1e3 * s.p99, 1e3 * s.max, s.samples);
  }
  if (r.cache_unverified > 0) {
    out += fmt::format("\ncache state not verifiable: {} of {} answers do not report cached tokens\n",
                       r.cache_unverified, r.completed);
  }
  if (r.cache_violation) out += "\nNOT VALID: " + *r.cache_violation + "\n";
  return out;
}

}  // namespace quire
