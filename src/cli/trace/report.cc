#include "cli/trace/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/text/quote.h"
#include "cli/terminal/text_table.h"

namespace quire {
namespace {

constexpr size_t kShownParts = 4;  // of a slow step

std::string ms(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string percent_of(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : std::string("-");
}

// ASCII, as tables need it.
std::string ascii_quoted(const std::string& text) {
  std::string out = quote(text);
  std::ranges::replace_if(
      out, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return out;
}

std::string began_at(int64_t microseconds) {
  const std::chrono::sys_time<std::chrono::microseconds> time{std::chrono::microseconds(microseconds)};
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", std::chrono::floor<std::chrono::seconds>(time));
}

std::vector<std::string> cells(const std::string& name, const TimeTally& t, double whole) {
  return {name, ms(t.total), percent_of(t.total, whole), std::to_string(t.count), ms(t.mean), ms(t.p99)};
}

std::string section(std::string_view title, const TextTable& table) {
  return fmt::format("\n{}\n{}", title, table.text());
}

std::string time_text(const TraceSummary& s) {
  TextTable table({"", "ms", "share"}, 1);
  const auto add = [&](const std::string& name, double seconds) {
    table.add({name, ms(seconds), percent_of(seconds, s.seconds)});
  };
  add("in steps", s.step_seconds);
  add("idle: no request", s.idle_seconds);
  if (s.wait_seconds > 0) add("waiting for the page store", s.wait_seconds);
  add("between steps", s.gap_seconds);
  add("all", s.seconds);
  return section("time", table);
}

std::string kinds_text(const TraceSummary& s) {
  TextTable table({"steps", "ms", "share", "count", "mean", "p99", "prompt rows", "decode rows", "drafts", "tokens"},
                  1);
  for (const StepKindTally& kind : s.kinds) {
    std::vector<std::string> row = cells(kind.kind, kind.times, s.step_seconds);
    for (const int64_t count : {kind.prompt_rows, kind.decode_rows, kind.drafts, kind.tokens})
      row.push_back(std::to_string(count));
    table.add(std::move(row));
  }
  return section("steps by kind (ms)", table);
}

std::string parts_text(std::string_view title, const char* head, const std::vector<NamedTally>& parts, double whole) {
  TextTable table({head, "ms", "share", "count", "mean", "p99"}, 1);
  for (const NamedTally& part : parts) table.add(cells(part.name, part.times, whole));
  return section(title, table);
}

std::string answers_text(const AnswersSummary& a) {
  std::string reasons;
  for (const auto& [reason, count] : a.reasons)
    reasons += fmt::format("{}{} {}", reasons.empty() ? " (" : ", ", count, reason);
  if (!reasons.empty()) reasons += ")";
  std::string text = fmt::format("\nanswers: {} finished{}, {} unfinished; {} preemption{}\n", a.finished, reasons,
                                 a.unfinished, a.preemptions, a.preemptions == 1 ? "" : "s");
  if (a.finished == 0) return text;
  text +=
      fmt::format("tokens: {} of prompts, {} of them cached; {} generated", a.prompt_tokens, a.cached_tokens, a.tokens);
  if (a.drafted > 0) text += fmt::format("; {} of {} drafted right", a.accepted, a.drafted);
  TextTable table({"ms", "count", "mean", "p50", "p99", "most"}, 1);
  const auto add = [&](const std::string& name, const TimeTally& t) {
    if (t.count > 0) table.add({name, std::to_string(t.count), ms(t.mean), ms(t.p50), ms(t.p99), ms(t.most)});
  };
  add("queued", a.queue);
  add("time to first token", a.ttft);
  add("time per further token", a.tpot);
  add("whole answer", a.total);
  return text + "\n" + table.text();
}

std::string slowest_text(const std::vector<SlowStep>& steps) {
  TextTable table(
      {"step", "kind", "what took longest", "at s", "ms", "sequences", "prompt rows", "decode rows", "drafts"}, 3);
  for (const SlowStep& step : steps) {
    std::string parts;
    for (size_t i = 0; i < std::min(step.parts.size(), kShownParts); ++i)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", step.parts[i].first, ms(step.parts[i].second));
    table.add({std::to_string(step.number), step.kind, parts, fmt::format("{:.3f}", step.began), ms(step.seconds),
               std::to_string(step.sequences), std::to_string(step.prompt_rows), std::to_string(step.decode_rows),
               std::to_string(step.drafts)});
  }
  return section("slowest steps (ms)", table);
}

Json tally_json(const TimeTally& t) {
  return {{"count", t.count},      {"total_ms", t.total * 1e3}, {"mean_ms", t.mean * 1e3},
          {"p50_ms", t.p50 * 1e3}, {"p99_ms", t.p99 * 1e3},     {"max_ms", t.most * 1e3}};
}

Json parts_json(const std::vector<NamedTally>& parts, double whole) {
  Json out = Json::object();
  for (const NamedTally& part : parts) {
    out[part.name] = tally_json(part.times);
    out[part.name]["share"] = whole > 0 ? part.times.total / whole : 0;
  }
  return out;
}

}  // namespace

std::vector<std::string> warnings_of(const TraceSummary& s) {
  std::vector<std::string> warnings;
  if (s.end == TraceEnd::kMissing)
    warnings.push_back(
        fmt::format("the trace lacks its end{}: the process was killed, is still running, or the disk was full",
                    s.cut_inside_event ? ", and its last event is cut off" : ""));
  if (s.end == TraceEnd::kLimit)
    warnings.emplace_back("the trace reached its limit (--trace-limit); the rest of the run is missing");
  if (s.losses.steps > 0)
    warnings.push_back(fmt::format("{} steps are missing, because the disk could not keep up", s.losses.steps));
  if (s.losses.operations > 0)
    warnings.push_back(fmt::format("{} operations are missing: their steps had too many", s.losses.operations));
  if (s.losses.answers > 0)
    warnings.push_back(
        fmt::format("{} events of answers are missing, because too many came at once", s.losses.answers));
  return warnings;
}

std::string to_text(const TraceSummary& s) {
  const TraceHeader& h = s.header;
  std::string text = fmt::format("{}: {} kernels, activations {}, {} threads, from {}\n", ascii_quoted(h.model),
                                 h.kernels, h.activations, h.threads, began_at(h.started));
  text += fmt::format("{} steps in {:.3f} s\n", s.steps, s.seconds);
  if (s.steps > 0) {
    text += time_text(s) + kinds_text(s);
    text += parts_text("phases of steps (ms)", "phase", s.phases, s.step_seconds);
  }
  if (!s.operations.empty())
    text +=
        parts_text("operations of forward passes (ms; share of all steps)", "operation", s.operations, s.step_seconds);
  text += answers_text(s.answers);
  if (!s.slowest.empty()) text += slowest_text(s.slowest);
  return text;
}

Json to_json(const TraceSummary& s) {
  const TraceHeader& h = s.header;
  Json out = {{"model", h.model},
              {"kernels", h.kernels},
              {"activations", h.activations},
              {"threads", h.threads},
              {"started_us", h.started},
              {"end", kTraceEndNames[static_cast<size_t>(s.end)]},
              {"lost", {{"steps", s.losses.steps}, {"operations", s.losses.operations}, {"answers", s.losses.answers}}},
              {"warnings", warnings_of(s)},
              {"steps", s.steps},
              {"time_ms",
               {{"all", s.seconds * 1e3},
                {"steps", s.step_seconds * 1e3},
                {"idle", s.idle_seconds * 1e3},
                {"page_store", s.wait_seconds * 1e3},
                {"between_steps", s.gap_seconds * 1e3}}}};
  Json& kinds = out["kinds"] = Json::object();
  for (const StepKindTally& kind : s.kinds) {
    Json& one = kinds[kind.kind] = tally_json(kind.times);
    one["share"] = s.step_seconds > 0 ? kind.times.total / s.step_seconds : 0;
    one.update({{"prompt_rows", kind.prompt_rows},
                {"decode_rows", kind.decode_rows},
                {"drafts", kind.drafts},
                {"tokens", kind.tokens}});
  }
  out["phases"] = parts_json(s.phases, s.step_seconds);
  out["operations"] = parts_json(s.operations, s.step_seconds);
  const AnswersSummary& a = s.answers;
  out["answers"] = {{"finished", a.finished},
                    {"unfinished", a.unfinished},
                    {"reasons", a.reasons},
                    {"preemptions", a.preemptions},
                    {"prompt_tokens", a.prompt_tokens},
                    {"cached_tokens", a.cached_tokens},
                    {"tokens", a.tokens},
                    {"drafted", a.drafted},
                    {"accepted", a.accepted},
                    {"queue", tally_json(a.queue)},
                    {"ttft", tally_json(a.ttft)},
                    {"tpot", tally_json(a.tpot)},
                    {"total", tally_json(a.total)}};
  Json& slowest = out["slowest"] = Json::array();
  for (const SlowStep& step : s.slowest) {
    Json parts = Json::object();
    for (const auto& [name, seconds] : step.parts) parts[name] = seconds * 1e3;
    slowest.push_back({{"step", step.number},
                       {"kind", step.kind},
                       {"at_ms", step.began * 1e3},
                       {"ms", step.seconds * 1e3},
                       {"sequences", step.sequences},
                       {"prompt_rows", step.prompt_rows},
                       {"decode_rows", step.decode_rows},
                       {"drafts", step.drafts},
                       {"parts_ms", std::move(parts)}});
  }
  return out;
}

}  // namespace quire
