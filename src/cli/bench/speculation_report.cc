#include "cli/bench/speculation_report.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "base/cpu.h"
#include "cli/bench/limits.h"
#include "cli/terminal/text_table.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Columns of the table of acceptance; deeper drafts are in the JSON.
constexpr std::array kShownDepths{1, 2, 3, 4, 6, 8, 12, 16, 32, 64};

double share(uint64_t a, uint64_t b) { return ratio(static_cast<double>(a), static_cast<double>(b)); }

struct Shares {
  double drafting, verifying, rest;
};

Shares shares_of(const DecodeCounts& on) {
  const double drafting = ratio(on.drafts.seconds, on.seconds), verifying = ratio(on.verify_seconds, on.seconds);
  return {drafting, verifying, std::max(0.0, 1 - drafting - verifying)};
}

double speed_up(const DrafterResult& r) { return ratio(r.on.tokens_per_second(), r.off.tokens_per_second()); }

// Of the samples: one slow moment of the machine does not change it.
double median_ratio(const DrafterResult& r) {
  Samples ratios;
  for (const SpeculationSample& s : r.samples) {
    if (s.on_seconds > 0) ratios.add(s.off_seconds / s.on_seconds);
  }
  return ratios.values.empty() ? 0 : ratios.median();
}

std::string percent(double share, int decimals = 0) { return fmt::format("{:.{}f} %", 100 * share, decimals); }
std::string speed(double rate) { return fmt::format("{:.{}f}", rate, rate < 1000 ? 1 : 0); }
std::string times(double factor) { return fmt::format("{:.2f}x", factor); }

void print_measured(const SpeculationReport& report) {
  TextTable table({"drafter", "tok/step", "off tok/s", "on tok/s", "ratio", "drafting", "verifying", "rest"}, 1);
  for (const DrafterResult& r : report.drafters) {
    const Shares shares = shares_of(r.on);
    table.add({r.drafter, fmt::format("{:.2f}", r.on.tokens_per_step()), speed(r.off.tokens_per_second()),
               speed(r.on.tokens_per_second()), times(speed_up(r)), percent(shares.drafting, 1),
               percent(shares.verifying), percent(shares.rest)});
  }
  std::printf("%s", table.text().c_str());
}

void print_expected(const SpeculationReport& report) {
  TextTable table({"expected", "a", "k", "tok/step", "on tok/s", "ratio", "by depth", "ratio"}, 1);
  for (const DrafterResult& r : report.drafters) {
    const SpeculationEstimate& e = r.expected;
    const double off = r.off.tokens_per_second();
    table.add({r.drafter, fmt::format("{:.2f}", e.acceptance), fmt::format("{:.1f}", e.depth),
               fmt::format("{:.2f}", e.tokens_per_step), speed(e.tokens_per_second),
               times(ratio(e.tokens_per_second, off)), speed(e.tokens_per_second_by_depth),
               times(ratio(e.tokens_per_second_by_depth, off))});
  }
  std::printf("\n%s", table.text().c_str());
  std::printf(
      "\na: chance that a drafted token is right if those before it are\n"
      "k: mean tokens of a draft\n"
      "tok/step: (1 - a^(k+1)) / (1 - a) where tokens are drafted, else 1\n"
      "on tok/s: from that tok/step and the measured cost of steps of k+1 rows\n"
      "by depth: from the measured tok/step and the same costs\n");
}

void print_acceptance(const SpeculationReport& report) {
  std::vector<std::string> heads{"right to depth", "drafts"};
  std::vector<size_t> depths;
  for (const int depth : kShownDepths) {
    if (depth > report.options.engine.num_speculative_tokens) break;
    depths.push_back(static_cast<size_t>(depth) - 1);
    heads.push_back(fmt::format("{}", depth));
  }
  TextTable table(std::move(heads), 1);
  for (const DrafterResult& r : report.drafters) {
    const DrafterStats& d = r.on.drafts;
    std::vector<std::string> row{r.drafter, fmt::format("{}", d.drafted[0])};
    for (const size_t i : depths) row.push_back(d.drafted[i] > 0 ? percent(share(d.accepted[i], d.drafted[i])) : "-");
    table.add(std::move(row));
  }
  std::printf("\n%s\nright to depth d: share of drafts of at least d tokens whose first d are right\n",
              table.text().c_str());
}

Json speed_json(const DecodeCounts& c) {
  return {{"tokens_per_second", c.tokens_per_second()},
          {"seconds", c.seconds},
          {"tokens", c.tokens},
          {"steps", c.steps},
          {"tokens_per_step", c.tokens_per_step()}};
}

Json drafter_json(const DrafterResult& r) {
  const DrafterStats& d = r.on.drafts;
  const SpeculationEstimate& e = r.expected;
  const Shares shares = shares_of(r.on);
  const double off = r.off.tokens_per_second();
  Json depths = Json::array(), costs = Json::array(), samples = Json::array();
  for (size_t i = 0; i < d.drafted.size() && d.drafted[i] > 0; ++i) {
    depths.push_back({{"depth", i + 1},
                      {"drafted", d.drafted[i]},
                      {"right", d.accepted[i]},
                      {"share", share(d.accepted[i], d.drafted[i])}});
  }
  for (const RowCost& cost : r.costs) costs.push_back({{"rows", cost.rows}, {"seconds", cost.seconds}});
  for (const SpeculationSample& s : r.samples) {
    samples.push_back(
        {{"prompt", s.prompt}, {"tokens", s.tokens}, {"off_seconds", s.off_seconds}, {"on_seconds", s.on_seconds}});
  }
  return {{"drafter", r.drafter},
          {"off", speed_json(r.off)},
          {"on", speed_json(r.on)},
          {"ratio", speed_up(r)},
          {"median_ratio", median_ratio(r)},
          {"verify_steps", r.on.verify_steps},
          {"shares", {{"drafting", shares.drafting}, {"verifying", shares.verifying}, {"rest", shares.rest}}},
          {"drafts", d.drafted[0]},
          {"acceptance", depths},
          {"expected",
           {{"acceptance", e.acceptance},
            {"depth", e.depth},
            {"tokens_per_step", e.tokens_per_step},
            {"tokens_per_second", e.tokens_per_second},
            {"ratio", ratio(e.tokens_per_second, off)},
            {"tokens_per_second_by_depth", e.tokens_per_second_by_depth},
            {"ratio_by_depth", ratio(e.tokens_per_second_by_depth, off)}}},
          {"step_costs", costs},
          {"samples", samples}};
}

}  // namespace

void print_tables(const SpeculationReport& report) {
  const ModelInfo& model = report.drafters.front().model;
  const SpeculationOptions& o = report.options;
  std::printf("%s: %s\n%s\n%s kernels, %s activations, %s KV cache, %d threads\n", model.name.c_str(),
              model.quantization.c_str(), cpu_name().c_str(), model.kernels.c_str(), model.activations.c_str(),
              model.kv_cache_dtype.c_str(), model.threads);
  const std::string sampling = o.temperature == 0 ? "greedy" : fmt::format("temperature {}", o.temperature);
  std::printf("%s: %zu prompts, %d at a time, up to %d tokens each, %s; drafts of up to %d\n\n", report.suite.c_str(),
              report.prompts, o.parallel, o.tokens, sampling.c_str(), o.engine.num_speculative_tokens);
  print_measured(report);
  print_expected(report);
  print_acceptance(report);
}

Json to_json(const SpeculationReport& report) {
  const ModelInfo& model = report.drafters.front().model;
  const SpeculationOptions& o = report.options;
  Json drafters = Json::array();
  for (const DrafterResult& r : report.drafters) drafters.push_back(drafter_json(r));
  return {{"model", model.name},
          {"quantization", model.quantization},
          {"cpu", cpu_name()},
          {"kernels", model.kernels},
          {"activations", model.activations},
          {"kv_cache_dtype", model.kv_cache_dtype},
          {"threads", model.threads},
          {"suite", report.suite},
          {"prompts", report.prompts},
          {"parallel", o.parallel},
          {"temperature", o.temperature},
          {"tokens", o.tokens},
          {"num_speculative_tokens", o.engine.num_speculative_tokens},
          {"results", drafters}};
}

}  // namespace quire
