// What a simulation says to whoever plans a cluster.
#pragma once

#include <optional>

#include "cluster/simulate.h"
#include "load/report.h"

namespace quire {

struct ClusterOutcome {
  Spread ttft, tpot, e2e;                   // tpot: of answers with more than one token
  double seconds = 0;                       // from the first arrival to the end of the last answer
  double output_rate = 0, prompt_rate = 0;  // tokens per second
  double hit_rate = 0;                      // part of the prompts' tokens that was cached
  double busy = 0;                          // part of the time that replicas spend in steps, their mean
  double good = 0;                          // part of the requests within the bounds
  uint64_t preemptions = 0;
  std::optional<double> price_output;  // of 10^6 tokens of answers
};

// level: bounds on each request. price_per_hour: of all machines; 0: not asked for.
ClusterOutcome outcome_of(const SimulationResult& result, const Workload& workload, const ServiceLevel& level,
                          double price_per_hour);

}  // namespace quire
