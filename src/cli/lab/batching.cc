// Static against continuous batching: which slots of the batch are occupied, step by step.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "cli/bench/limits.h"
#include "cli/figure/charts.h"
#include "cli/lab/batch_slots.h"
#include "cli/lab/engine_pair.h"
#include "cli/lab/experiment.h"
#include "cli/lab/stepped_run.h"

namespace quire {
namespace {

constexpr int kBatchSlots = 6, kBatchPrompt = 8;
// Static batching takes at most kMostBatches * kLongestAnswer steps, of which the engine must keep all.
constexpr int kMostBatches = 6, kLongestAnswer = 40;
static_assert(kMostBatches * kLongestAnswer < kMostSteppedSteps);
constexpr double kMeanAnswer = 14;

// Exponentially distributed: many short answers and a few long ones.
std::vector<int> draw_lengths(int count) {
  std::mt19937_64 random(7);
  std::vector<int> lengths;
  for (int i = 0; i < count; ++i) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) / static_cast<double>(uint64_t{1} << 53);
    lengths.push_back(std::clamp(static_cast<int>(std::ceil(-kMeanAnswer * std::log(uniform))), 1, kLongestAnswer));
  }
  return lengths;
}

double share_used(const BatchSteps& steps) {
  return 100 * static_cast<double>(steps.used) / (static_cast<double>(steps.steps) * kBatchSlots);
}

LabNumber steps_number(const char* what, const BatchSteps& counted, const BatchSteps& foretold, const char* theory) {
  return {.what = what,
          .unit = "steps",
          .value = static_cast<double>(counted.steps),
          .claim = Claim::kEqual,
          .foretold = static_cast<double>(foretold.steps),
          .theory = theory};
}

LabNumber share_number(const char* what, const BatchSteps& counted, const BatchSteps& foretold) {
  return {.what = what,
          .unit = "%",
          .value = share_used(counted),
          .claim = Claim::kEqual,
          .foretold = share_used(foretold),
          .theory = "tokens / (steps x slots)"};
}

LabResult run_batching(const LabOptions& o, Progress& progress) {
  const std::vector<int> lengths = draw_lengths(kBatchSlots * (o.quick ? 4 : kMostBatches));
  const int repetitions = o.quick ? 3 : 5;
  EngineOptions continuous = o.engine;
  continuous.max_num_seqs = kBatchSlots;
  // Longer than any answer, so that the cache never keeps a sequence waiting.
  continuous.max_model_len = std::min(4 * (kBatchPrompt + kLongestAnswer), context_of(o.engine));
  continuous.prefix_cache = false;
  // Prompts begin at once, whatever time their rows take: the step count is then a matter of slots alone.
  continuous.tpot_target = kMaxTpotTarget;
  continuous.ttft_target = 0;
  EngineOptions statically = continuous;
  statically.scheduler = SchedulerKind::kStatic;
  EnginePair engines(continuous, statically, progress);
  std::vector<SteppedRequest> requests;
  for (size_t i = 0; i < lengths.size(); ++i)
    requests.push_back({greedy_request(random_prompt(engines.on(), kBatchPrompt, i + 1), lengths[i])});
  Samples on_seconds, off_seconds;
  SteppedRun on, off;
  engines.alternate(o, repetitions, progress, [&](Engine& engine, bool is_on) {
    SteppedRun run = run_stepped(engine, requests);
    (is_on ? on_seconds : off_seconds).add(run.seconds);
    (is_on ? on : off) = std::move(run);
  });
  const BatchSteps on_slots = count_slots(on), off_slots = count_slots(off);
  const BatchSteps on_theory = continuous_steps(lengths, kBatchSlots), off_theory = static_steps(lengths, kBatchSlots);
  const double speedup = off_seconds.median() / on_seconds.median();
  const auto tokens = static_cast<double>(on_theory.used);
  LabResult r;
  r.summary = fmt::format(
      "Continuous batching fills {:.0f} % of the slots, static batching {:.0f} %; all answers are done {} as fast.",
      share_used(on_slots), share_used(off_slots), times_text(speedup));
  r.setup = {
      fmt::format("{} requests with prompts of {} tokens wait from the beginning; {} run together. Their answers "
                  "have 1 to {} tokens, drawn from an exponential distribution of mean {} that is cut there: {} "
                  "tokens in all.",
                  lengths.size(), kBatchPrompt, kBatchSlots, kLongestAnswer, kMeanAnswer, tokens),
      fmt::format("Each scheduler runs them {} times. The engine reports which sequences each step computed.",
                  repetitions)};
  const std::string model = shell_word(o.engine.model);
  r.commands = {fmt::format("quire serve -m {} --max-num-seqs {} --scheduler continuous", model, kBatchSlots),
                fmt::format("quire serve -m {} --max-num-seqs {} --scheduler static", model, kBatchSlots),
                "quire bench serve --help    # sends requests to either"};
  r.numbers = {
      steps_number("steps, continuous", on_slots, on_theory,
                   "list scheduling: each answer takes the slot that is free first"),
      steps_number("steps, static", off_slots, off_theory, "the longest answer of each batch, added up"),
      share_number("slots used, continuous", on_slots, on_theory),
      share_number("slots used, static", off_slots, off_theory),
      {.what = "answers that differ",
       .value = on.answers == off.answers ? 0.0 : 1.0,
       .claim = Claim::kEqual,
       .foretold = 0,
       .theory = "a row's result does not depend on the rows next to it"},
      {.what = "tokens per second, continuous",
       .unit = "tok/s",
       .value = tokens / on_seconds.median(),
       .counted = false},
      {.what = "tokens per second, static", .unit = "tok/s", .value = tokens / off_seconds.median(), .counted = false},
      {.what = "continuous compared with static",
       .unit = "times",
       .value = speedup,
       .counted = false,
       .claim = Claim::kAtMost,
       .foretold = static_cast<double>(off_slots.steps) / on_slots.steps,
       .factor = 1.15,
       .theory =
           "the ratio of steps, if a step took the same time however many slots are used; emptier steps are faster"},
  };
  SlotChart chart{.title = "Slots of the batch over time (hatched: empty)",
                  .x_label = "steps",
                  .slots = kBatchSlots,
                  .panels = {{"static", occupy_slots(off)}, {"continuous", occupy_slots(on)}}};
  r.figures = {{.caption = "Each bar is an answer; static batching waits for the longest of a batch",
                .svg = slot_chart_svg(chart)}};
  return r;
}

}  // namespace

constinit const Experiment kBatchingExperiment{
    .name = "batching",
    .title = "Continuous batching",
    .question = "How much of a batch stays empty if it waits for its longest answer?",
    .technique =
        "A step computes one token for every sequence of the batch, so empty slots are wasted. Static batching "
        "starts a batch and runs it to the end of its longest answer; continuous batching decides again at "
        "every step. When an answer ends, the next one takes its slot at once.",
    .page = "learn/batching",
    .run = run_batching};

}  // namespace quire
