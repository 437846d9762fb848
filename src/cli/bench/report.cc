#include "cli/bench/report.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/cpu.h"
#include "cli/terminal/text_table.h"
#include "engine/dtype_names.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string_view kind_name(BenchTest::Kind kind) { return kind == BenchTest::Kind::kPrefill ? "prefill" : "decode"; }

// One operation of a profile, or the rest.
struct Line {
  std::string_view name;
  double seconds, share, multiply_adds, bytes, of_limit;  // the last three: per second; 0 without a limit
  int64_t calls;
};

std::vector<Line> lines_of(const BenchProfile& p) {
  std::vector<Line> lines;
  for (size_t i = 0; i < kStepOps; ++i) {
    if (p.operations.calls[i] == 0 && static_cast<StepOp>(i) != StepOp::kSampling)
      continue;  // the model has no such part
    const double seconds = p.operations.seconds[i];
    const Work& work = p.work[i];
    Line line{kStepOpNames[i], seconds / p.steps, seconds / p.seconds, 0, 0, 0, p.operations.calls[i] / p.steps};
    if (seconds > 0 && work.total_multiply_adds() > 0) {
      line.multiply_adds = work.total_multiply_adds() / seconds;
      line.bytes = work.bytes / seconds;
      line.of_limit = least_seconds(work, p.machine) / seconds;
    }
    lines.push_back(line);
  }
  lines.push_back({"rest", p.rest() / p.steps, p.rest() / p.seconds, 0, 0, 0, 0});
  return lines;
}

// No decimals from 1,000 on, so that a tiny model's table fits in 80 columns too.
std::string tokens_per_second(double rate) { return fmt::format("{:.{}f}", rate, rate < 1000 ? 1 : 0); }

double measured_tokens(const BenchResult& r) {
  return static_cast<double>(r.test.tokens) * r.test.batch * static_cast<double>(r.rates.values.size());
}

// What the disk, or the system's page cache, gives and what tokens need of it.
struct ExpertRates {
  double bytes_per_token, bytes_per_second;  // the second is 0 if nothing was read
  double limit;                              // tokens per second at this rate; 0: none
  double hits, waiting;                      // parts of all chosen experts, and of the time
};
ExpertRates expert_rates(const BenchResult& r) {
  const ExpertReads& e = r.experts;
  const double bytes = static_cast<double>(e.bytes), rate = e.read_seconds > 0 ? bytes / e.read_seconds : 0,
               chosen = static_cast<double>(e.hits + e.reads);
  return {.bytes_per_token = bytes / measured_tokens(r),
          .bytes_per_second = rate,
          .limit = bytes > 0 ? rate * measured_tokens(r) / bytes : 0,
          .hits = chosen > 0 ? static_cast<double>(e.hits) / chosen : 1,
          .waiting = e.wait_seconds / r.seconds};
}

void print_expert_reads(const BenchReport& report) {
  std::printf("\nexperts: %d in memory at a time (%.1f MiB), the others are read from a file\n\n",
              report.model->expert_slots, static_cast<double>(report.model->expert_bytes) / (1 << 20));
  TextTable table({"test", "batch", "depth", "in memory", "MB/token", "read GB/s", "limit tok/s", "tok/s", "waiting"},
                  1);
  for (const BenchResult& r : report.results) {
    const ExpertRates e = expert_rates(r);
    table.add({fmt::format("{} {}", kind_name(r.test.kind), r.test.tokens), fmt::format("{}", r.test.batch),
               fmt::format("{}", r.test.depth), fmt::format("{:.0f} %", 100 * e.hits),
               fmt::format("{:.2f}", e.bytes_per_token / 1e6), fmt::format("{:.2f}", e.bytes_per_second / 1e9),
               e.limit > 0 ? tokens_per_second(e.limit) : "", tokens_per_second(r.rates.median()),
               fmt::format("{:.0f} %", 100 * e.waiting)});
  }
  std::printf("%s", table.text().c_str());
}

// The rate with adapters divided by that of the sample before it without.
Samples adapter_ratios(const BenchResult& with, const BenchResult& without) {
  Samples ratios;
  for (size_t i = 0; i < with.rates.values.size(); ++i) ratios.add(with.rates.values[i] / without.rates.values[i]);
  return ratios;
}

void print_adapters(const BenchReport& report) {
  const int adapters = report.results.back().test.adapters;
  if (adapters == 0) return;
  TextTable table(
      {fmt::format("+ {} adapters", adapters), "batch", "depth", "of the rate", "min", "max", "of the time"}, 1);
  for (size_t i = 1; i < report.results.size(); i += 2) {
    const BenchTest& test = report.results[i].test;
    const Samples ratios = adapter_ratios(report.results[i], report.results[i - 1]);
    table.add({fmt::format("{} {}", kind_name(test.kind), test.tokens), fmt::format("{}", test.batch),
               fmt::format("{}", test.depth), fmt::format("{:.3f}", ratios.median()),
               fmt::format("{:.3f}", ratios.low()), fmt::format("{:.3f}", ratios.high()),
               fmt::format("{:.1f} %", 100 * (1 - ratios.median()))});
  }
  std::printf("\n%s", table.text().c_str());
}

// What one of several ranks did in gathers, for each step.
struct StepGathers {
  double gathers, bytes, seconds, share;  // share: of the step's time
};
StepGathers step_gathers(const BenchResult& r) {
  const double seconds = static_cast<double>(r.gathered.nanoseconds) / 1e9;
  return {.gathers = static_cast<double>(r.gathered.gathers) / r.steps,
          .bytes = static_cast<double>(r.gathered.bytes) / r.steps,
          .seconds = seconds / r.steps,
          .share = seconds / r.seconds};
}

std::string describe_gathers(const BenchResult& r, const ModelInfo& info) {
  const StepGathers step = step_gathers(r);
  return fmt::format(
      "{} {}: {} ranks; a step has {:.0f} gathers, {:.1f} KiB received, {:.0f} us with waiting ({:.1f} %)",
      kind_name(r.test.kind), r.test.tokens, info.ranks, step.gathers, step.bytes / 1024, 1e6 * step.seconds,
      100 * step.share);
}

void print_results(const BenchReport& report) {
  const ModelInfo& info = *report.model;
  std::printf("%s: %s, %.1f M parameters, %.1f MiB\n%s\n%s kernels, %s activations, %s KV cache, %d threads\n\n",
              info.name.c_str(), info.quantization.c_str(), static_cast<double>(info.parameters) / 1e6,
              static_cast<double>(info.weight_bytes) / (1 << 20), cpu_name().c_str(), info.kernels.c_str(),
              info.activations.c_str(), info.kv_cache_dtype.c_str(), info.threads);
  TextTable table({"test", "batch", "depth", "tok/s", "min", "max", "limit", "of limit", "MB read"}, 1);
  std::vector<MachineRates> machine;
  for (const BenchResult& r : report.results) {
    table.add({fmt::format("{} {}{}", kind_name(r.test.kind), r.test.tokens, r.test.adapters > 0 ? " +" : ""),
               fmt::format("{}", r.test.batch), fmt::format("{}", r.test.depth), tokens_per_second(r.rates.median()),
               tokens_per_second(r.rates.low()), tokens_per_second(r.rates.high()),
               tokens_per_second(r.limits.median()), fmt::format("{:.0f} %", 100 * r.of_limit.median()),
               fmt::format("{:.1f}", r.bytes / 1e6)});
    machine.push_back(r.machine);
  }
  std::printf("%s\nlimit: %s\n", table.text().c_str(), describe(median_of(machine)).c_str());
  for (const BenchResult& r : report.results) {
    if (r.gathered.gathers > 0) std::printf("%s\n", describe_gathers(r, *report.model).c_str());
  }
  if (info.expert_slots > 0) print_expert_reads(report);
  print_adapters(report);
}

void print_profile(const BenchProfile& p, double empty_loop) {
  const std::string adapters = p.test.adapters > 0 ? fmt::format(", {} adapters", p.test.adapters) : "";
  std::printf("\n%s %d, batch %d, depth %d%s: %.3f ms per step\nlimit: %s\n\n", kind_name(p.test.kind).data(),
              p.test.tokens, p.test.batch, p.test.depth, adapters.c_str(), 1e3 * p.seconds / p.steps,
              describe(p.machine).c_str());
  TextTable table({"operation", "ms", "share", "calls", "GMAC/s", "GB/s", "of limit"}, 1);
  for (const Line& line : lines_of(p)) {
    const bool limited = line.of_limit > 0;
    table.add({std::string(line.name), fmt::format("{:.3f}", 1e3 * line.seconds),
               fmt::format("{:.1f} %", 100 * line.share), fmt::format("{}", line.calls),
               limited ? fmt::format("{:.1f}", line.multiply_adds / 1e9) : "",
               limited ? fmt::format("{:.2f}", line.bytes / 1e9) : "",
               limited ? fmt::format("{:.0f} %", 100 * line.of_limit) : ""});
  }
  std::printf("%s", table.text().c_str());
  if (p.test.kind == BenchTest::Kind::kPrefill) return;
  std::printf("\nfixed cost per step: %.0f us (small operations; %.2f us to start each loop)\n",
              1e6 * p.fixed_step_seconds(empty_loop), 1e6 * empty_loop);
}

void print_quality(const Quality& q) {
  std::printf(
      "\n%s activations, %s KV cache compared with float32 on %d tokens\n"
      "KL divergence    mean %.6f, p99 %.5f, max %.4f\n"
      "same top token   %.2f %%\n"
      "perplexity       %.4f (float32: %.4f)\n",
      q.activations.c_str(), q.kv_cache_dtype.c_str(), q.tokens, q.mean_kl, q.p99_kl, q.max_kl, 100 * q.top1_agreement,
      q.perplexity, q.float_perplexity);
}

Json experts_json(const BenchResult& r) {
  const ExpertRates e = expert_rates(r);
  return {{"hits", r.experts.hits},
          {"reads", r.experts.reads},
          {"bytes_read", r.experts.bytes},
          {"bytes_per_token", e.bytes_per_token},
          {"bytes_per_second", e.bytes_per_second},
          {"limit_tokens_per_second", e.limit},
          {"wait_seconds", r.experts.wait_seconds},
          {"waiting", e.waiting}};
}

Json to_json(const BenchResult& r) {
  Json out = {{"test", kind_name(r.test.kind)},
              {"tokens", r.test.tokens},
              {"depth", r.test.depth},
              {"batch", r.test.batch},
              {"adapters", r.test.adapters},
              {"tokens_per_second", r.rates.median()},
              {"min", r.rates.low()},
              {"max", r.rates.high()},
              {"samples", r.rates.values},
              {"limit_tokens_per_second", r.limits.median()},
              {"of_limit", r.of_limit.median()},
              {"bytes_read", r.bytes},
              {"machine", to_json(r.machine)}};
  if (r.gathered.gathers == 0) return out;
  const StepGathers step = step_gathers(r);
  out["gathers_per_step"] = step.gathers;
  out["gathered_bytes_per_step"] = step.bytes;
  out["gather_seconds_per_step"] = step.seconds;
  out["gather_share"] = step.share;
  return out;
}

Json profile_json(const BenchProfile& p, double empty_loop) {
  Json operations = Json::array();
  for (const Line& line : lines_of(p)) {
    Json one = {{"operation", line.name}, {"seconds", line.seconds}, {"share", line.share}, {"calls", line.calls}};
    if (line.of_limit > 0) {
      one["multiply_adds_per_second"] = line.multiply_adds;
      one["bytes_per_second"] = line.bytes;
      one["of_limit"] = line.of_limit;
    }
    operations.push_back(one);
  }
  Json out = {{"test", kind_name(p.test.kind)},
              {"tokens", p.test.tokens},
              {"depth", p.test.depth},
              {"batch", p.test.batch},
              {"adapters", p.test.adapters},
              {"steps", p.steps},
              {"step_seconds", p.seconds / p.steps},
              {"operations", operations},
              {"machine", to_json(p.machine)}};
  if (p.test.kind == BenchTest::Kind::kDecode) {
    out["fixed_step_seconds"] = p.fixed_step_seconds(empty_loop);
    out["empty_loop_seconds"] = empty_loop;
  }
  return out;
}

Json to_json(const Quality& q) {
  return {{"activations", q.activations},
          {"kv_cache_dtype", q.kv_cache_dtype},
          {"tokens", q.tokens},
          {"mean_kl", q.mean_kl},
          {"p99_kl", q.p99_kl},
          {"max_kl", q.max_kl},
          {"top1_agreement", q.top1_agreement},
          {"perplexity", q.perplexity},
          {"float_perplexity", q.float_perplexity}};
}

}  // namespace

std::string describe(const MachineRates& rates) {
  std::string text = fmt::format("{:.1f} GB/s memory bandwidth", rates.bandwidth / 1e9);
  for (const Activations unit : {Activations::kInt8, Activations::kBf16, Activations::kF32}) {
    const double rate = rates.multiply_adds[static_cast<size_t>(unit)];
    if (rate > 0) text += fmt::format(", {:.0f} GMAC/s {}", rate / 1e9, name(unit));
  }
  return text;
}

Json to_json(const MachineRates& rates) {
  Json multiply_adds = Json::object();
  for (const Activations unit : {Activations::kF32, Activations::kBf16, Activations::kInt8}) {
    const double rate = rates.multiply_adds[static_cast<size_t>(unit)];
    if (rate > 0) multiply_adds[std::string(name(unit))] = rate;
  }
  return {{"bytes_per_second", rates.bandwidth}, {"multiply_adds_per_second", multiply_adds}};
}

void print_tables(const BenchReport& report) {
  if (report.model) print_results(report);
  for (const BenchProfile& profile : report.profiles) print_profile(profile, report.empty_loop);
  if (report.quality) print_quality(*report.quality);
}

Json to_json(const BenchReport& report) {
  Json out = Json::object();
  if (report.model) {
    const ModelInfo& info = *report.model;
    out = {{"model", info.name},
           {"quantization", info.quantization},
           {"parameters", info.parameters},
           {"weight_bytes", info.weight_bytes},
           {"cpu", cpu_name()},
           {"kernels", info.kernels},
           {"activations", info.activations},
           {"kv_cache_dtype", info.kv_cache_dtype},
           {"threads", info.threads}};
    out["results"] = Json::array();
    for (const BenchResult& r : report.results) {
      out["results"].push_back(to_json(r));
      if (report.model->expert_slots > 0) out["results"].back()["experts"] = experts_json(r);
      if (r.test.adapters > 0) out["results"].back()["of_rate_without"] = adapter_ratios(r, (&r)[-1]).median();
    }
  }
  for (const BenchProfile& p : report.profiles) out["profiles"].push_back(profile_json(p, report.empty_loop));
  if (report.quality) out["quality"] = to_json(*report.quality);
  return out;
}

}  // namespace quire
