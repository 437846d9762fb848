// quire plan -tp N: what N machines gain as the ranks of a model (docs/scale.md).
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "plan/rank_plan.h"

namespace quire {

struct RankFlags {
  int ranks = 1;
  std::string latency = "10us";
  double gbits = 100;
};

// --tensor-parallel-size, --rank-latency, --rank-bandwidth.
void add_rank_plan_options(CLI::App& command, RankFlags& flags);
RankRequest rank_request(const RankFlags& flags);

std::string rank_plan_text(const RankPlan& plan, const PlanRequest& request);
nlohmann::ordered_json rank_plan_json(const RankPlan& plan);

}  // namespace quire
