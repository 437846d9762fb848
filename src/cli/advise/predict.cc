#include "cli/advise/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/error.h"
#include "base/team.h"
#include "engine/dtype_names.h"
#include "kernels/kernels.h"
#include "model/checkpoint.h"
#include "model/registry.h"
#include "plan/planned_model.h"
#include "plan/serving.h"
#include "plan/step_probe.h"

namespace quire {
namespace {

constexpr int kProbeRuns = 3;
constexpr int kMostPredicted = 32;  // requests at once
// Types that lose little, and the bits that they must save to be worth a new file.
constexpr TensorType kSmallerTypes[] = {TensorType::Q8_0, TensorType::Q4_K};
constexpr double kFewerBits = 0.9;

double bits_per_weight(const PlannedModel& model) {
  return 8 * model.weight_bytes() / static_cast<double>(model.parameters());
}

}  // namespace

AdvicePredictions predict_advice(const EngineOptions& engine, const AdviceBaseline& baseline,
                                 const AdviceWorkload& workload) {
  const ComputeForm form{.activations = *find_value(kActivationsNames, baseline.model.activations),
                         .kv = *find_value(kKvTypeNames, baseline.model.kv_cache_dtype),
                         .packed = true};
  Team team(baseline.model.threads);
  const Compute compute{choose_kernels(engine.kernels), team, form.activations};
  const auto measured = [&](const PlannedModel& model) {
    return StepProbe(compute, model, form.kv, engine.tuning_file, available_memory() / 2).measure(kProbeRuns);
  };
  // What all prompts begin with is in the prefix cache.
  const double prompt = workload.mean_prompt() - (engine.prefix_cache ? workload.shared_prefix : 0);
  const auto rate = [&](const StepTimes& times, int concurrency) {
    const ServingLoad load{.users = concurrency,
                           .prompt = std::max(1, static_cast<int>(std::lround(prompt))),
                           .answer = std::max(1, static_cast<int>(std::lround(workload.mean_answer()))),
                           .chunk = engine.max_num_batched_tokens};
    return serving_times(load, [&](const StepLoad& step) { return step_seconds(times, step); }).output_rate;
  };
  AdvicePredictions all;
  const PlannedModel mine = plan_checkpoint(Checkpoint::open(resolve_model(engine.model)), form);
  std::optional<StepTimes> my_times;
  try {
    my_times = measured(mine);
    for (int concurrency = 1; concurrency <= kMostPredicted; concurrency *= 2)
      all.batching.push_back({concurrency, rate(*my_times, concurrency)});
  } catch (const Error& e) {
    all.batching_not_predicted = e.what();
  }
  for (const TensorType type : kSmallerTypes) {
    AdvicePrediction& row = all.weight_types.emplace_back();
    row.what = "weight type";
    row.choice = name(type);
    row.takes = "quire quantize";
    row.not_predicted = all.batching_not_predicted;
    if (!my_times) continue;
    try {
      const PlannedModel other = plan_config(mine.name, mine.config, {.type = type}, form);
      if (bits_per_weight(other) > kFewerBits * bits_per_weight(mine)) {
        row.not_predicted = fmt::format("the file's weights have {:.2g} bits already", bits_per_weight(mine));
        continue;
      }
      row.gain = rate(measured(other), workload.concurrency) / rate(*my_times, workload.concurrency);
    } catch (const Error& e) {
      row.not_predicted = e.what();
    }
  }
  return all;
}

double saved_score_bytes(const AdviceBaseline& baseline, const AdviceWorkload& workload) {
  int prompt = 1;
  for (const PlannedRequest& request : workload.requests) prompt = std::max(prompt, request.input_tokens);
  const KvType kv = *find_value(kKvTypeNames, baseline.model.kv_cache_dtype);
  return baseline.model.heads * score_matrix_bytes(prompt, kv);
}

}  // namespace quire
