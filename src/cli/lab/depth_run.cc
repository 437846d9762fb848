#include "cli/lab/depth_run.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "cli/bench/limits.h"
#include "model/step_profile.h"

namespace quire {
namespace {

EngineOptions for_one_sequence(EngineOptions options, int longest) {
  options.max_num_seqs = 1;
  options.max_model_len = longest;
  return options;
}

}  // namespace

DepthRun::DepthRun(EngineOptions options, int longest, std::shared_ptr<Runtime> runtime)
    : model_(for_one_sequence(std::move(options), longest), 0, std::move(runtime)), sequence_(model_) {}

DepthTime DepthRun::reach(int depth) {
  if (depth < sequence_.tokens()) sequence_.clear();
  DepthTime sum;
  while (sequence_.tokens() < depth) {
    const DepthTime time = append(std::min(model_.plan.limits.max_rows, depth - sequence_.tokens()));
    sum.total += time.total;
    sum.attention += time.attention;
  }
  return sum;
}

DepthTime DepthRun::decode(int steps) {
  assert(steps > 0);
  std::vector<DepthTime> times;
  for (int i = 0; i < steps; ++i) times.push_back(append(1));
  std::ranges::nth_element(times, times.begin() + steps / 2, {}, &DepthTime::total);
  return times[static_cast<size_t>(steps / 2)];
}

DepthTime DepthRun::append(int count) {
  ids_.clear();
  for (int i = 0; i < count; ++i) {
    const int64_t position = sequence_.tokens() + i;
    ids_.push_back(static_cast<TokenId>((position * 104729 + 17) % model_.target.config.vocab));
  }
  StepProfile profile;
  model_.decoder()->profile(&profile);
  const double seconds = seconds_of([&] { sequence_.append(ids_, false); });
  model_.decoder()->profile(nullptr);
  return {seconds, profile.seconds[static_cast<size_t>(StepOp::kAttention)]};
}

}  // namespace quire
