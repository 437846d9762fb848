#include "plan/rank_plan.h"

#include "model/config.h"

namespace quire {

RankPlan plan_ranks(const PlannedModel& model, const Plan& plan, const PlanRequest& request, KvType kv,
                    const RankRequest& ranks) {
  RankPlan all{.request = ranks,
               .weights_read = model.weight_bytes() / ranks.ranks,
               .exchange = rank_exchange(model.config, ranks.ranks),
               .steps = {}};
  const CacheLayout cache = cache_layout(model.config, kv).of_largest_rank(ranks.ranks);
  all.cache = static_cast<double>(request.users) * static_cast<double>(cache.sequence_bytes(request.context()));
  for (const PlannedStep& step : plan.steps) {
    const bool decodes = step.tokens == step.sequences;
    const int steps = decodes ? 1 : (step.tokens + request.chunk - 1) / request.chunk;
    const double bytes = all.exchange.bytes_per_row * step.tokens + all.exchange.bytes_per_logits * step.sequences;
    all.steps.push_back({.what = step.what,
                         .sequences = step.sequences,
                         .one = step.seconds(),
                         .share = step.seconds() / ranks.ranks,
                         .gathers = steps * all.exchange.gathers * ranks.latency + bytes / ranks.bandwidth,
                         .bytes = bytes});
  }
  return all;
}

}  // namespace quire
