#include "cli/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "cli/chat/output.h"
#include "cli/plan/quantities.h"
#include "cli/plan/ranks.h"
#include "cli/terminal/text_table.h"
#include "engine/dtype_names.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string rate_text(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second < 10 ? 2 : per_second < 1000 ? 1 : 0);
}
std::string count_text(uint64_t n) {
  const auto x = static_cast<double>(n);
  return x < 1e6 ? fmt::format("{}", n) : x < 1e9 ? fmt::format("{:.1f} M", x / 1e6) : fmt::format("{:.2f} B", x / 1e9);
}

std::string users_text(int users) { return users == 1 ? "1 user" : fmt::format("{} users", users); }

class PlanPage {
 public:
  void line(const std::string& text = {}) { text_ += text + "\n"; }
  template <class... A>
  void row(const char* label, fmt::format_string<A...> f, A&&... a) {
    fmt::format_to(std::back_inserter(text_), "{:<22} {}\n", label, fmt::format(f, std::forward<A>(a)...));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void describe_model(const PlanReport& r, PlanPage& page) {
  const ModelConfig& c = r.model.config;
  page.line(fmt::format("{}: {} parameters, {} layers, context {}", escape_controls(r.model.name, true),
                        count_text(r.model.parameters()), c.layers.size(), c.max_positions));
  std::string units;
  for (const Activations unit : units_of(r.model.work)) {
    const double rate = 2 * r.hardware.rates.multiply_adds[static_cast<size_t>(unit)];
    units += fmt::format(", {} {}", in_units(rate / 1e9, {"GOPS", "TOPS", "POPS"}), name(unit));
  }
  page.line(fmt::format("{}: {}, {}/s{}{}", escape_controls(r.hardware.title, true), size_text(r.hardware.memory),
                        size_text(r.hardware.rates.bandwidth), units,
                        r.measured ? " (measured now)" : " (data sheet)"));
}

void describe_memory(const PlanReport& r, PlanPage& page) {
  const PlannedMemory& m = r.plan.memory;
  page.line("\nMemory");
  for (const WeightsOfType& t : r.model.types)
    page.row(&t == &r.model.types.front() ? "  weights" : "", "{:>9}  {} ({} weights)", size_text(t.bytes), t.type,
             count_text(t.weights));
  page.row("  KV cache", "{:>9}  {} x {} for {} tokens; {} a token, {}", size_text(m.cache), r.request.users,
           size_text(m.cache_per_sequence), r.request.context(), size_text(m.cache_per_token), name(r.form.kv));
  page.row("  activations", "{:>9}", size_text(m.activations));
  page.row("  total", "{:>9}  of {}", size_text(m.total()), size_text(m.available));
  if (m.total() <= m.available) {
    page.row("  fits", "yes; the memory is enough for {}", users_text(m.most_users));
  } else {
    const double times = m.total() / m.available;
    page.row("  fits", "no: {:.1f} times the memory is needed{}", times,
             r.measured ? "" : fmt::format(" (--devices {})", static_cast<int64_t>(std::ceil(times))));
  }
}

void describe_time(const PlanReport& r, PlanPage& page) {
  const bool predicted = !r.plan.steps.empty() && r.plan.steps.back().predicted > 0;
  std::vector<std::string> heads{"Time",       "users", "tokens",   "after", "read",
                                 "operations", "ops/B", "bound by", "least"};
  if (predicted) heads.emplace_back("predicted");
  heads.emplace_back("tok/s");
  TextTable table(heads, 1);
  for (const PlannedStep& s : r.plan.steps) {
    std::vector<std::string> cells{"  " + s.what,
                                   fmt::format("{}", s.sequences),
                                   fmt::format("{}", s.tokens),
                                   fmt::format("{}", s.position),
                                   size_text(s.work.bytes),
                                   in_units(2 * s.work.total_multiply_adds() / 1e6, {"M", "G", "T", "P"}),
                                   fmt::format("{:.1f}", s.intensity()),
                                   s.reads_longest ? "memory" : "compute",
                                   duration_text(s.least)};
    if (predicted) cells.push_back(duration_text(s.predicted));
    cells.push_back(rate_text(s.tokens / s.seconds()));
    table.add(cells);
  }
  page.line();
  page.line(table.text());
}

void describe_serving(const PlanReport& r, PlanPage& page) {
  const Plan& p = r.plan;
  const PlanRequest& q = r.request;
  if (!r.model.config.has_logits) return;
  if (p.compute_bound)
    page.row("compute-bound from", "{} sequences that decode", *p.compute_bound);
  else
    page.row("compute-bound from", "never at this context: each sequence reads a cache of its own");
  page.line(
      fmt::format("\nLoad: {} with always one request of {} + {} tokens", users_text(q.users), q.prompt, q.answer));
  page.row("  TTFT", "{}{}", duration_text(p.serving.ttft),
           p.serving.prefill_bound ? "  prompts wait for each other: more of them come than are computed" : "");
  page.row("  TPOT", "{}", duration_text(p.serving.tpot));
  page.row("  tokens a second", "{} of answers, {} of prompts", rate_text(p.serving.output_rate),
           rate_text(p.serving.prompt_rate));
  if (q.ttft || q.tpot) {
    std::string bounds;
    if (q.ttft) bounds += fmt::format(" TTFT {}", duration_text(*q.ttft));
    if (q.tpot) bounds += fmt::format("{} TPOT {}", q.ttft ? "," : "", duration_text(*q.tpot));
    page.row("  users within", "{} ({}), {}", p.users_within, bounds.substr(1),
             p.users_within > 0 && p.users_within == p.memory.most_users ? "all that fit"
                                                                         : fmt::format("{} fit", p.memory.most_users));
  }
  if (p.price_output)
    page.row("  cost of 1 M tokens", "{:.3g} of answers, prompts included; {:.3g} of prompts alone", *p.price_output,
             *p.price_prompt);
}

Json step_json(const PlannedStep& s) {
  return {{"step", s.what},
          {"sequences", s.sequences},
          {"tokens", s.tokens},
          {"position", s.position},
          {"bytes", s.work.bytes},
          {"operations", 2 * s.work.total_multiply_adds()},
          {"operations_per_byte", s.intensity()},
          {"bound_by", s.reads_longest ? "memory" : "compute"},
          {"least_seconds", s.least},
          {"predicted_seconds", s.predicted > 0 ? Json(s.predicted) : Json()}};
}

Json weights_json(const PlannedModel& model) {
  Json types = Json::array();
  for (const WeightsOfType& t : model.types)
    types.push_back({{"type", t.type}, {"weights", t.weights}, {"bytes", t.bytes}});
  return types;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

void print_plan(const PlanReport& r) {
  PlanPage page;
  describe_model(r, page);
  describe_memory(r, page);
  describe_time(r, page);
  describe_serving(r, page);
  if (r.ranks) page.line(rank_plan_text(*r.ranks, r.request));
  for (const std::string& assumption : r.model.assumptions) page.line("note: " + escape_controls(assumption, true));
  if (!r.measured && r.request.efficiency == 1)
    page.line("note: these are the shortest times that the data sheet allows; programs are slower (--efficiency)");
  std::printf("%s", page.text().c_str());
}

Json plan_json(const PlanReport& r) {
  const Plan& p = r.plan;
  const PlanRequest& q = r.request;
  Json rates = Json::object();
  for (const Activations unit : {Activations::kF32, Activations::kBf16, Activations::kInt8}) {
    const double rate = r.hardware.rates.multiply_adds[static_cast<size_t>(unit)];
    if (rate > 0) rates[std::string(name(unit))] = 2 * rate;
  }
  Json out = {{"model",
               {{"name", r.model.name},
                {"architecture", r.model.config.architecture},
                {"parameters", r.model.parameters()},
                {"layers", r.model.config.layers.size()},
                {"context", r.model.config.max_positions},
                {"weights", weights_json(r.model)},
                {"assumptions", r.model.assumptions}}},
              {"hardware",
               {{"name", r.hardware.name},
                {"title", r.hardware.title},
                {"measured", r.measured},
                {"memory_bytes", r.hardware.memory},
                {"bytes_per_second", r.hardware.rates.bandwidth},
                {"operations_per_second", std::move(rates)},
                {"source", r.hardware.source}}},
              {"request",
               {{"users", q.users},
                {"prompt", q.prompt},
                {"answer", q.answer},
                {"chunk", q.chunk},
                {"activations", name(r.form.activations)},
                {"kv_cache_dtype", name(r.form.kv)},
                {"efficiency", q.efficiency}}},
              {"memory",
               {{"weights", p.memory.weights},
                {"kv_cache", p.memory.cache},
                {"kv_cache_per_token", p.memory.cache_per_token},
                {"kv_cache_per_sequence", p.memory.cache_per_sequence},
                {"activations", p.memory.activations},
                {"total", p.memory.total()},
                {"available", p.memory.available},
                {"fits", p.memory.total() <= p.memory.available},
                {"most_users", p.memory.most_users}}},
              {"steps", Json::array()}};
  for (const PlannedStep& step : p.steps) out["steps"].push_back(step_json(step));
  out["compute_bound_sequences"] = or_null(p.compute_bound);
  out["load"] = nullptr;
  if (r.model.config.has_logits)
    out["load"] = {{"ttft_seconds", p.serving.ttft},
                   {"tpot_seconds", p.serving.tpot},
                   {"output_tokens_per_second", p.serving.output_rate},
                   {"prompt_tokens_per_second", p.serving.prompt_rate},
                   {"prefill_bound", p.serving.prefill_bound},
                   {"users_within_bounds", p.users_within}};
  if (r.ranks) out["ranks"] = rank_plan_json(*r.ranks);
  out["cost_per_million"] = {{"output_tokens", or_null(p.price_output)}, {"prompt_tokens", or_null(p.price_prompt)}};
  return out;
}

}  // namespace quire
