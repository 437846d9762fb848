#include "cluster/outcome.h"

#include <numeric>
#include <vector>

#include "plan/serving.h"

namespace quire {

ClusterOutcome outcome_of(const SimulationResult& result, const Workload& workload, const ServiceLevel& level,
                          double price_per_hour) {
  ClusterOutcome outcome;
  std::vector<double> ttft, tpot, e2e;
  double prompt = 0, answer = 0, cached = 0, good = 0;
  const auto within = [](double seconds, const std::optional<double>& bound) { return !bound || seconds <= *bound; };
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const SimulatedRequest& r = result.requests[i];
    const PlannedRequest& planned = workload.requests[i];
    const double per_token = r.tpot(planned.output_tokens);
    ttft.push_back(r.ttft());
    if (planned.output_tokens > 1) tpot.push_back(per_token);
    e2e.push_back(r.finished - r.arrived);
    prompt += planned.input_tokens;
    answer += planned.output_tokens;
    cached += r.cached_tokens;
    good += within(r.ttft(), level.ttft) && within(per_token, level.tpot) && within(e2e.back(), level.e2e);
  }
  outcome.ttft = spread_of(std::move(ttft));
  outcome.tpot = spread_of(std::move(tpot));
  outcome.e2e = spread_of(std::move(e2e));
  outcome.seconds = result.seconds - result.requests.front().arrived;
  outcome.output_rate = answer / outcome.seconds;
  outcome.prompt_rate = prompt / outcome.seconds;
  outcome.hit_rate = cached / prompt;
  outcome.busy =
      std::reduce(result.busy.begin(), result.busy.end()) / (outcome.seconds * static_cast<double>(result.busy.size()));
  outcome.good = good / static_cast<double>(result.requests.size());
  outcome.preemptions = result.preemptions;
  if (price_per_hour > 0) outcome.price_output = price_per_million(price_per_hour, outcome.output_rate);
  return outcome;
}

}  // namespace quire
