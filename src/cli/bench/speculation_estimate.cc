#include "cli/bench/speculation_estimate.h"

#include <algorithm>
#include <numeric>

namespace quire {
namespace {

void add_drafts(DrafterStats& sum, const DrafterStats& more) {
  sum.complete += more.complete;
  sum.seconds += more.seconds;
  for (size_t i = 0; i < sum.drafted.size(); ++i) {
    sum.drafted[i] += more.drafted[i];
    sum.accepted[i] += more.accepted[i];
  }
}

DrafterStats all_drafters(const EngineStats& stats) {
  DrafterStats sum;
  for (const DrafterStats& drafter : stats.drafters) add_drafts(sum, drafter);
  return sum;
}

double total(std::span<const uint64_t> values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), uint64_t{0}));
}

double seconds_of_steps(const DecodeCounts& counts, std::span<const RowCost> costs) {
  double sum = 0;
  for (size_t rows = 1; rows < counts.steps_by_rows.size(); ++rows) {
    if (const uint64_t steps = counts.steps_by_rows[rows]; steps > 0)
      sum += static_cast<double>(steps) * seconds_at(costs, static_cast<int>(rows));
  }
  return sum;
}

}  // namespace

double tokens_of_step(double a, int k) {
  double sum = 1, chance = 1;
  for (int i = 0; i < k; ++i) sum += chance *= a;
  return sum;
}

double token_acceptance(const DrafterStats& drafts) {
  const double right = total(drafts.accepted), wrong = static_cast<double>(drafts.drafted[0] - drafts.complete);
  return ratio(right, right + wrong);
}

double mean_depth(const DrafterStats& drafts) {
  return ratio(total(drafts.drafted), static_cast<double>(drafts.drafted[0]));
}

double seconds_at(std::span<const RowCost> costs, int rows) {
  if (costs.size() == 1) return costs[0].seconds;
  size_t i = 1;
  while (i + 1 < costs.size() && costs[i].rows < rows) ++i;
  const RowCost &low = costs[i - 1], &high = costs[i];
  return low.seconds + (high.seconds - low.seconds) / (high.rows - low.rows) * (rows - low.rows);
}

DecodeCounts DecodeCounts::between(const EngineStats& before, const EngineStats& after, double elapsed) {
  DecodeCounts c;
  c.seconds = std::max(0.0, elapsed - (after.prompt_seconds - before.prompt_seconds));
  c.verify_seconds = after.verify_seconds - before.verify_seconds;
  c.tokens = after.decode_tokens - before.decode_tokens;
  c.sequences = after.decode_sequences - before.decode_sequences;
  c.steps = after.decode_steps - before.decode_steps;
  c.verify_steps = after.verify_steps - before.verify_steps;
  for (size_t i = 0; i < c.steps_by_rows.size(); ++i)
    c.steps_by_rows[i] = after.decode_steps_by_rows[i] - before.decode_steps_by_rows[i];
  c.drafts = all_drafters(after);
  const DrafterStats old = all_drafters(before);
  c.drafts.complete -= old.complete;
  c.drafts.seconds -= old.seconds;
  for (size_t i = 0; i < old.drafted.size(); ++i) {
    c.drafts.drafted[i] -= old.drafted[i];
    c.drafts.accepted[i] -= old.accepted[i];
  }
  return c;
}

void DecodeCounts::add(const DecodeCounts& more) {
  seconds += more.seconds;
  verify_seconds += more.verify_seconds;
  tokens += more.tokens;
  sequences += more.sequences;
  steps += more.steps;
  verify_steps += more.verify_steps;
  for (size_t i = 0; i < steps_by_rows.size(); ++i) steps_by_rows[i] += more.steps_by_rows[i];
  add_drafts(drafts, more.drafts);
}

double DecodeCounts::tokens_per_step() const {
  return ratio(static_cast<double>(tokens), static_cast<double>(sequences));
}
double DecodeCounts::tokens_per_second() const { return ratio(static_cast<double>(tokens), seconds); }

SpeculationEstimate estimate(const DecodeCounts& off, const DecodeCounts& on, std::span<const RowCost> costs) {
  const DrafterStats& drafts = on.drafts;
  SpeculationEstimate e;
  e.acceptance = token_acceptance(drafts);
  e.depth = mean_depth(drafts);
  double tokens = std::max(0.0, static_cast<double>(on.sequences) - static_cast<double>(drafts.drafted[0]));
  for (size_t k = 1; k <= drafts.drafted.size(); ++k) {
    const uint64_t deeper = k < drafts.drafted.size() ? drafts.drafted[k] : 0;
    tokens += static_cast<double>(drafts.drafted[k - 1] - deeper) * tokens_of_step(e.acceptance, static_cast<int>(k));
  }
  e.tokens_per_step = ratio(tokens, static_cast<double>(on.sequences));
  if (costs.empty()) return e;
  const double scale = ratio(off.seconds, seconds_of_steps(off, costs));
  const double seconds = scale * seconds_of_steps(on, costs) + drafts.seconds;
  e.tokens_per_second = ratio(tokens, seconds);
  e.tokens_per_second_by_depth = ratio(static_cast<double>(on.tokens), seconds);
  return e;
}

}  // namespace quire
