#include "cli/plan/ranks.h"

#include <fmt/format.h>

#include "cli/flags/engine_options.h"
#include "cli/plan/quantities.h"
#include "cli/terminal/text_table.h"
#include "engine/ranks/rank_group.h"

namespace quire {

void add_rank_plan_options(CLI::App& command, RankFlags& flags) {
  constexpr const char* kGroup = "Ranks";
  CLI::Option* const ranks =
      command
          .add_option("--tensor-parallel-size", flags.ranks,
                      "or -tp N: also say what N such machines gain if they compute the model together (docs/scale.md)")
          ->check(between(1, kMaxRanks))
          ->group(kGroup)
          ->capture_default_str();
  for (const char* other : {"--devices", "--check", "--advise", "--cluster"})
    ranks->excludes(command.get_option(other));
  command
      .add_option("--rank-latency", flags.latency,
                  "time that each exchange between them takes, however few bytes it has")
      ->needs(ranks)
      ->check(time_check())
      ->type_name("TIME")
      ->group(kGroup)
      ->capture_default_str();
  command.add_option("--rank-bandwidth", flags.gbits, "Gbit/s that each of them receives")
      ->needs(ranks)
      ->check(between(1e-3, 1e6))
      ->group(kGroup)
      ->capture_default_str();
}

RankRequest rank_request(const RankFlags& flags) {
  double latency = 0;
  read_seconds(flags.latency, latency);
  return {.ranks = flags.ranks, .latency = latency, .bandwidth = flags.gbits * 1e9 / 8};
}

std::string rank_plan_text(const RankPlan& plan, const PlanRequest& request) {
  std::string text = fmt::format(
      "\n{} ranks, {} and {}/s between them: {} gathers in a step\n"
      "  each reads {} of the weights, and keeps {} of KV cache for {} users\n",
      plan.request.ranks, duration_text(plan.request.latency), size_text(plan.request.bandwidth), plan.exchange.gathers,
      size_text(plan.weights_read), size_text(plan.cache), request.users);
  TextTable table({"  step", "users", "one machine", "a share", "received", "gathers", "ranks", "gain"}, 1);
  for (const RankStep& s : plan.steps)
    table.add({"  " + s.what, fmt::format("{}", s.sequences), duration_text(s.one), duration_text(s.share),
               size_text(s.bytes), duration_text(s.gathers), duration_text(s.seconds()),
               fmt::format("{:.2f}", s.gain())});
  return text + table.text();
}

nlohmann::ordered_json rank_plan_json(const RankPlan& plan) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const RankStep& s : plan.steps)
    steps.push_back({{"step", s.what},
                     {"sequences", s.sequences},
                     {"one_seconds", s.one},
                     {"share_seconds", s.share},
                     {"received_bytes", s.bytes},
                     {"gather_seconds", s.gathers},
                     {"seconds", s.seconds()},
                     {"gain", s.gain()}});
  return {{"tensor_parallel_size", plan.request.ranks},
          {"latency_seconds", plan.request.latency},
          {"bytes_per_second", plan.request.bandwidth},
          {"gathers_per_step", plan.exchange.gathers},
          {"weights_read", plan.weights_read},
          {"kv_cache", plan.cache},
          {"steps", std::move(steps)}};
}

}  // namespace quire
