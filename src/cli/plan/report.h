// A plan for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "plan/hardware.h"
#include "plan/plan.h"
#include "plan/rank_plan.h"

namespace quire {

struct PlanReport {
  PlannedModel model;
  Hardware hardware;
  bool measured = false;  // the machine's rates are those of this machine, measured now
  ComputeForm form;
  PlanRequest request;
  Plan plan;
  std::optional<RankPlan> ranks;
};

void print_plan(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace quire
