#include "cli/plan/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "cli/chat/output.h"
#include "cli/figure/charts.h"
#include "cli/flags/parsed_by.h"
#include "cli/flags/workload_flags.h"
#include "cli/plan/svg.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_table.h"
#include "cluster/cluster_file.h"
#include "cluster/outcome.h"
#include "cluster/simulate.h"
#include "plan/rank_times.h"

namespace quire {
namespace {

constexpr double kMostCacheTokens = 1 << 26;
constexpr size_t kMostLines = 6;  // of a chart
constexpr int kUsualRequests = 1000;

struct SimulatedCluster {
  ClusterSpec spec;
  ClusterOutcome outcome;
};

// What the memory of a replica's machines leaves for the cache.
int cache_tokens(const Plan& plan, int ranks) {
  const PlannedMemory& m = plan.memory;
  const double left = ranks * m.available - m.weights - ranks * m.activations;
  if (left < m.cache_per_token)
    throw no_resource("the weights ({:.1f} GB) leave no memory for a KV cache on {} x {:.1f} GB; raise tensor_parallel",
                      m.weights / 1e9, ranks, m.available / 1e9);
  return static_cast<int>(std::min(left / m.cache_per_token, kMostCacheTokens));
}

void check_lengths(const Workload& workload, const ClusterSpec& spec, int page_tokens, const ModelConfig& config) {
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const int tokens = workload.requests[i].input_tokens + workload.requests[i].output_tokens;
    // A page to grow into, and what does not fill one.
    const int most = std::min(spec.cache_tokens - 2 * page_tokens, config.max_positions);
    if (tokens > most)
      throw invalid(
          "request {} of the load has {} tokens, and a replica takes at most {}; shorten them by --max-input, "
          "--max-output or --length-scale",
          i, tokens, most);
  }
}

std::string description(const ClusterSpec& spec) {
  std::string text(kRoutingPolicies[static_cast<size_t>(spec.policy)]);
  if (spec.ranks > 1) text += fmt::format(", -tp {}", spec.ranks);
  if (spec.decoders > 0) text += fmt::format(", {} decode", spec.decoders);
  return text;
}

void print_clusters(const std::vector<SimulatedCluster>& clusters, bool bounded, bool priced) {
  std::vector<std::string> heads{"router",   "replicas", "machines",  "TTFT p50", "p95", "p99",
                                 "TPOT p50", "p95",      "tok/s out", "cached",   "busy"};
  if (bounded) heads.emplace_back("good");
  if (priced) heads.emplace_back("per 10^6 out");
  TextTable table(std::move(heads), 1);
  const auto ms = [](double seconds) { return fmt::format("{:.0f} ms", 1e3 * seconds); };
  const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
  for (const auto& [spec, o] : clusters) {
    std::vector<std::string> row{description(spec),
                                 fmt::format("{}", spec.replicas),
                                 fmt::format("{}", spec.machines()),
                                 ms(o.ttft.p50),
                                 ms(o.ttft.p95),
                                 ms(o.ttft.p99),
                                 fmt::format("{:.1f} ms", 1e3 * o.tpot.p50),
                                 fmt::format("{:.1f} ms", 1e3 * o.tpot.p95),
                                 fmt::format("{:.0f}", o.output_rate),
                                 percent(o.hit_rate),
                                 percent(o.busy)};
    if (bounded) row.push_back(percent(o.good));
    if (priced) row.push_back(fmt::format("{:.3g}", o.price_output.value_or(0)));
    table.add(std::move(row));
  }
  std::printf("%s", table.text().c_str());
}

nlohmann::ordered_json spread_json(const Spread& s) {
  return {{"mean_ms", 1e3 * s.mean}, {"p50_ms", 1e3 * s.p50}, {"p95_ms", 1e3 * s.p95}, {"p99_ms", 1e3 * s.p99}};
}

nlohmann::ordered_json cluster_json(const SimulatedCluster& cluster) {
  const auto& [spec, o] = cluster;
  nlohmann::ordered_json json{{"router", kRoutingPolicies[static_cast<size_t>(spec.policy)]},
                              {"replicas", spec.replicas},
                              {"decode_replicas", spec.decoders},
                              {"tensor_parallel", spec.ranks},
                              {"machines", spec.machines()},
                              {"cache_tokens", spec.cache_tokens},
                              {"ttft", spread_json(o.ttft)},
                              {"tpot", spread_json(o.tpot)},
                              {"e2e", spread_json(o.e2e)},
                              {"seconds", o.seconds},
                              {"output_tokens_per_second", o.output_rate},
                              {"prompt_tokens_per_second", o.prompt_rate},
                              {"cached", o.hit_rate},
                              {"busy", o.busy},
                              {"good", o.good},
                              {"preemptions", o.preemptions}};
  if (o.price_output) json["price_per_million_output"] = *o.price_output;
  return json;
}

// Times to the first token over the number of machines, a line for each kind of cluster.
std::string clusters_svg(const std::vector<SimulatedCluster>& clusters) {
  LineChart chart{.title = "Time to the first token, 95 of 100 requests",
                  .x_label = "machines",
                  .y_label = "seconds",
                  .log_y = true};
  for (const auto& [spec, o] : clusters) {
    const std::string name = description(spec);
    auto line = std::ranges::find(chart.lines, name, &ChartLine::name);
    if (line == chart.lines.end()) {
      if (chart.lines.size() == kMostLines) continue;
      line = chart.lines.insert(line, ChartLine{.name = name});
    }
    line->points.push_back({static_cast<double>(spec.machines()), o.ttft.p95});
  }
  for (ChartLine& line : chart.lines) std::ranges::sort(line.points, {}, &ChartPoint::x);
  return line_chart_svg(chart);
}

}  // namespace

void add_cluster_options(CLI::App& command, ClusterOptions& o) {
  const std::string group = "Cluster";
  CLI::Option* const file =
      command
          .add_option(
              "--cluster", o.file,
              "simulate the clusters of this JSON file under a load: replicas of the machine and a router before "
              "them (docs/cluster.md)")
          ->type_name("FILE")
          ->group(group);
  add_trace_flags(
      command, o.workload, group,
      "lengths of requests, and arrival times unless --rate is given: Azure's CSV or Mooncake's JSON lines");
  command.add_option("--rate", o.workload.rate, "Poisson arrivals per second")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command
      .add_option("-n,--requests", o.workload.requests,
                  fmt::format("number of requests (default: the whole trace; without one {})", kUsualRequests))
      ->check(CLI::PositiveNumber)
      ->group(group);
  command.add_option("--prompt", o.workload.input_tokens, "tokens per prompt, without a trace")
      ->check(CLI::PositiveNumber)
      ->group(group)
      ->capture_default_str();
  command.add_option("--output", o.workload.output_tokens, "tokens per answer, without a trace")
      ->check(CLI::PositiveNumber)
      ->group(group)
      ->capture_default_str();
  command
      .add_option("--shared-prefix", o.workload.shared_prefix,
                  "tokens that all prompts begin with: part of --prompt, added to prompts of a trace")
      ->check(CLI::PositiveNumber)
      ->group(group);
  command.add_option("--seed", o.workload.seed, "of arrivals and of routers that choose at random")
      ->check(CLI::NonNegativeNumber)
      ->group(group)
      ->capture_default_str();
  for (const char* name : {"--trace", "--skip", "--time-scale", "--length-scale", "--max-input", "--max-output",
                           "--rate", "--requests", "--prompt", "--output", "--shared-prefix", "--seed"})
    command.get_option(name)->needs(file);
  for (const char* other : {"--users", "--context", "--answer", "--ttft", "--tpot", "--check", "--advise"})
    file->excludes(command.get_option(other));
}

void check_cluster_options(const ClusterOptions& o) {
  if (!o.file.empty() && o.workload.trace.empty() && o.workload.rate == 0)
    throw CLI::ValidationError("--cluster", "needs a load: --trace or --rate");
}

void run_cluster(const ClusterOptions& o, const PlanReport& plan, const PlannedMachine& machine) {
  const ModelConfig& config = plan.model.config;
  if (!config.has_logits)
    throw unsupported("{} does not generate; clusters are simulated for models that do", plan.model.name);
  const ServiceLevel level = parse_service_level(o.slo);
  std::vector<ClusterSpec> specs = read_clusters(o.file, ClusterSpec{});
  WorkloadOptions options = o.workload;
  if (options.trace.empty() && options.requests == 0) options.requests = kUsualRequests;
  const Workload workload = plan_workload(options);
  const StepSeconds one = step_times_on(plan.model, machine, plan.request.efficiency);
  Progress progress;
  std::vector<SimulatedCluster> clusters;
  for (ClusterSpec& spec : specs) {
    if (spec.cache_tokens == 0) spec.cache_tokens = cache_tokens(plan.plan, spec.ranks);
    const int page_tokens = simulated_page_tokens(spec);
    check_lengths(workload, spec, page_tokens, config);
    progress.stage(fmt::format("simulating {} replicas, {}", spec.replicas, description(spec)));
    const SimulationResult result =
        simulate_cluster(spec, {.workload = workload,
                                .step = with_ranks(one, rank_exchange(config, spec.ranks), spec.ranks,
                                                   spec.rank_link.latency, spec.rank_link.bandwidth),
                                .token_bytes = plan.plan.memory.cache_per_token,
                                .page_tokens = page_tokens});
    clusters.push_back({spec, outcome_of(result, workload, level, plan.request.price_per_hour * spec.machines())});
  }
  progress.clear();
  if (!o.svg.empty()) write_svg(o.svg, clusters_svg(clusters), o.force);
  if (o.json) {
    nlohmann::ordered_json json{
        {"model", plan.model.name}, {"hardware", plan.hardware.title}, {"requests", workload.requests.size()}};
    for (const SimulatedCluster& cluster : clusters) json["clusters"].push_back(cluster_json(cluster));
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  std::printf("%s on %s, %zu requests, simulated\n\n", escape_controls(plan.model.name, true).c_str(),
              escape_controls(plan.hardware.title, true).c_str(), workload.requests.size());
  print_clusters(clusters, level.given(), plan.request.price_per_hour > 0);
}

}  // namespace quire
