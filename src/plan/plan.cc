#include "plan/plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "engine/step/local_executor.h"
#include "ops/cpu/cpu_backend.h"
#include "plan/last_fitting.h"

namespace quire {
namespace {

// Rows of logits besides those of the users, as in engine/memory_plan.cc.
constexpr int kPromptLogits = 32;

double activation_bytes(const ModelConfig& config, const PlanRequest& r, int users, int threads) {
  const DecoderLimits limits{std::max(r.chunk, users), users + kPromptLogits, r.context()};
  return static_cast<double>(LocalExecutor::memory_bytes(config, limits, CpuBackend::operations_bytes_with(threads)) +
                             sampling_bytes(threads, config.vocab));
}

PlannedMemory plan_bytes(const PlannedModel& model, const PlannedMachine& machine, KvType kv, const PlanRequest& r) {
  const CacheLayout layout = cache_layout(model.config, kv);
  PlannedMemory memory{.weights = model.weight_bytes(),
                       .cache_per_token = static_cast<double>(layout.token_bytes()),
                       .cache_per_sequence = static_cast<double>(layout.sequence_bytes(r.context())),
                       .available = machine.memory};
  const auto activations = [&](int users) { return activation_bytes(model.config, r, users, machine.threads); };
  const auto fits = [&](int users) {
    return memory.weights + activations(users) + users * memory.cache_per_sequence <= machine.memory;
  };
  memory.activations = activations(r.users);
  memory.cache = r.users * memory.cache_per_sequence;
  memory.most_users = last_fitting(0, kMostPlannedUsers, fits);
  return memory;
}

// The chunks of a prompt, one step after the other.
template <class F>
double over_chunks(const PlanRequest& r, const F& seconds) {
  double sum = 0;
  for (int at = 0; at < r.prompt; at += r.chunk)
    sum += seconds(prefill_load(std::min(r.chunk, r.prompt - at), at, at + r.chunk >= r.prompt));
  return sum;
}

}  // namespace

StepSeconds step_times_on(const PlannedModel& model, const PlannedMachine& machine, double efficiency) {
  if (machine.measured) return [times = *machine.measured](const StepLoad& load) { return step_seconds(times, load); };
  return [work = model.work, rates = machine.rates, efficiency](const StepLoad& load) {
    return least_seconds(total_work(step_work(work, load)), rates) / efficiency;
  };
}

Plan make_plan(const PlannedModel& model, const PlannedMachine& machine, const ComputeForm& form,
               const PlanRequest& r) {
  if (r.context() > model.config.max_positions)
    throw invalid("--context is {} tokens, but {} was trained for at most {}", r.context(), model.name,
                  model.config.max_positions);
  Plan plan;
  plan.memory = plan_bytes(model, machine, form.kv, r);
  const MachineRates& rates = machine.rates;
  const StepSeconds least = [&](const StepLoad& load) {
    return least_seconds(total_work(step_work(model.work, load)), rates) / r.efficiency;
  };
  const StepSeconds seconds = step_times_on(model, machine, r.efficiency);
  const auto finish = [&](PlannedStep step) {
    step.reads_longest = reading_seconds(step.work, rates) >= multiplying_seconds(step.work, rates);
    plan.steps.push_back(std::move(step));
  };
  if (model.config.has_logits) {
    for (const int users : {1, 8, 32, r.users}) {
      if (std::ranges::find(plan.steps, users, &PlannedStep::sequences) != plan.steps.end()) continue;
      const StepLoad load = decode_load(users, r.context() - 1);
      finish({.what = "decode",
              .sequences = users,
              .tokens = users,
              .position = r.context() - 1,
              .work = total_work(step_work(model.work, load)),
              .least = least(load),
              .predicted = machine.measured ? seconds(load) : 0});
    }
  }
  PlannedStep prefill{.what = "prefill", .tokens = r.prompt};
  prefill.least = over_chunks(r, [&](const StepLoad& load) {
    prefill.work += total_work(step_work(model.work, load));
    return least(load);
  });
  if (machine.measured) prefill.predicted = over_chunks(r, seconds);
  const double prefill_seconds = prefill.seconds();
  finish(std::move(prefill));
  if (r.price_per_hour > 0) plan.price_prompt = price_per_million(r.price_per_hour, r.prompt / prefill_seconds);
  if (!model.config.has_logits) return plan;

  plan.compute_bound = compute_bound_batch(model.work, rates, r.context());
  const ServingLoad load{.users = r.users, .prompt = r.prompt, .answer = r.answer, .chunk = r.chunk};
  plan.serving = serving_times(load, seconds);
  plan.users_within = most_users(load, plan.memory.most_users, r.ttft, r.tpot, seconds);
  if (r.price_per_hour > 0) plan.price_output = price_per_million(r.price_per_hour, plan.serving.output_rate);
  return plan;
}

}  // namespace quire
