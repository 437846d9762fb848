// What several machines like the planned one would gain as the ranks of a model (docs/scale.md).
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/rank_times.h"

namespace quire {

struct RankRequest {
  int ranks = 1;         // 1: no plan of ranks
  double latency = 0;    // seconds of a gather without bytes
  double bandwidth = 1;  // bytes a second that a rank receives
};

// A step of the plan, or the steps of a prompt.
struct RankStep {
  std::string what;  // as PlannedStep
  int sequences = 1;
  double one = 0;      // seconds, on one machine
  double share = 0;    // seconds of a rank's share
  double gathers = 0;  // seconds in gathers
  double bytes = 0;    // that a rank receives

  double seconds() const { return share + gathers; }
  double gain() const { return one / seconds(); }
};

struct RankPlan {
  RankRequest request;
  double weights_read = 0;  // bytes that a rank reads in a step of many rows; it has all weights in memory
  double cache = 0;         // bytes of all users in the cache of the rank with most KV heads
  RankExchange exchange;
  std::vector<RankStep> steps;
};

// A pure function. plan: of one machine, for the request.
RankPlan plan_ranks(const PlannedModel& model, const Plan& plan, const PlanRequest& request, KvType kv,
                    const RankRequest& ranks);

}  // namespace quire
