#include "cli/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/cpu.h"
#include "cli/flags/engine_options.h"
#include "cli/terminal/text_table.h"
#include "engine/loaded_model.h"
#include "engine/memory_plan.h"
#include "engine/runtime.h"
#include "model/registry.h"
#include "plan/planned_model.h"
#include "plan/step_probe.h"

namespace quire {
namespace {

// What ModelBench allocates to measure the memory's bandwidth.
constexpr size_t kReadProbeBytes = size_t{512} << 20;

std::vector<BenchTest> check_tests(const PlanCheckOptions& o) {
  std::vector<BenchTest> tests;
  for (const int depth : o.depths) {
    for (const int tokens : o.prompts) tests.push_back({BenchTest::Kind::kPrefill, tokens, depth, 1});
    for (const int batch : o.batches) tests.push_back({BenchTest::Kind::kDecode, o.decoded, depth, batch});
  }
  return tests;
}

// Seconds of a decode step, or of the whole prefill in chunks of `chunk` rows.
double predicted_seconds(const StepTimes& times, const BenchTest& test, int chunk) {
  if (test.kind == BenchTest::Kind::kDecode)
    return step_seconds(times, decode_load(test.batch, test.depth + test.tokens / 2));
  double seconds = 0;
  for (int at = 0; at < test.tokens; at += chunk) {
    const int rows = std::min(chunk, test.tokens - at);
    seconds += step_seconds(times, prefill_load(rows, test.depth + at, at + rows == test.tokens));
  }
  return seconds;
}

// Without sampling, which no step of the decoder does.
constexpr auto kSampled = static_cast<size_t>(StepOp::kSampling);

double typical_seconds(const std::vector<BenchProfile>& runs) {
  double sum = 0;
  for (size_t op = 0; op <= kStepOps; ++op) {
    if (op == kSampled) continue;
    Samples seconds;
    for (const BenchProfile& run : runs) seconds.add(op < kStepOps ? run.operations.seconds[op] : run.rest());
    sum += seconds.median();
  }
  return sum;
}

double mean_seconds(const std::vector<BenchProfile>& runs) {
  double sum = 0;
  for (const BenchProfile& run : runs) sum += run.seconds - run.operations.seconds[kSampled];
  return sum / static_cast<double>(runs.size());
}

}  // namespace

PlanCheck check_plan(EngineOptions engine, const PlanCheckOptions& o, Progress& progress) {
  const std::vector<BenchTest> tests = check_tests(o);
  engine.max_num_seqs = std::ranges::max(o.batches);
  engine.max_num_batched_tokens = std::max(engine.max_num_batched_tokens, engine.max_num_seqs);
  for (const BenchTest& test : tests) engine.max_model_len = std::max(engine.max_model_len, test.depth + test.tokens);
  reserve_cache(engine, tests);
  progress.stage("loading " + engine.model);
  const size_t before = anonymous_memory();
  need_cpu(engine);
  LoadedModel model(engine, engine.max_num_seqs);  // without rows of logits for prompts, which no test asks for
  PlanCheck check{.model = engine.model, .threads = model.runtime.team.size(), .rows = {}};
  for (const BenchTest& test : tests) check.rows.push_back({test, {}, {}, {}, {}});
  ModelBench bench(model, tests, progress);
  bench.run(1);
  check.measured_bytes = static_cast<double>(anonymous_memory() - before - kReadProbeBytes);
  const size_t for_sampling = sampling_bytes(check.threads, model.target.config.vocab);
  check.predicted_bytes =
      static_cast<double>(model.plan.weights + model.plan.vocabulary + model.plan.activations - for_sampling) +
      static_cast<double>(bench_cache_bytes(tests, model.plan.layout));

  const Compute compute = model.runtime.cpu.compute(model.plan.activation_type);
  const KvType kv = model.plan.layout.type();
  const PlannedModel planned = plan_checkpoint(Checkpoint::open(resolve_model(engine.model)),
                                               {.activations = compute.activations, .kv = kv, .packed = true});
  StepProbe probe(compute, planned, kv, engine.tuning_file, available_memory() / 2);
  progress.stage("probing");
  StepTimes times = probe.measure(o.probe_runs);
  for (int repetition = 0; repetition < o.repetitions; ++repetition) {
    const std::vector<std::vector<BenchProfile>> profiles = bench.profiles(1);
    progress.stage("probing");
    const StepTimes after = probe.measure(o.probe_runs);
    for (size_t i = 0; i < profiles.size(); ++i) {
      PlanCheckRow& row = check.rows[i];
      const int chunk = model.plan.limits.max_rows;
      row.predicted.add((predicted_seconds(times, row.test, chunk) + predicted_seconds(after, row.test, chunk)) / 2);
      row.measured.add(typical_seconds(profiles[i]));
      row.mean.add(mean_seconds(profiles[i]));
      row.ratio.add(row.measured.values.back() / row.predicted.values.back());
    }
    times = after;
  }
  return check;
}

void print_check(const PlanCheck& check) {
  std::printf("%s, %d threads: measured compared with predicted\n\n", check.model.c_str(), check.threads);
  TextTable table({"test", "batch", "depth", "predicted ms", "measured ms", "ratio", "lowest", "highest", "mean ms"},
                  1);
  for (const PlanCheckRow& row : check.rows) {
    const bool decode = row.test.kind == BenchTest::Kind::kDecode;
    table.add({decode ? "decode, a step" : fmt::format("prefill {}", row.test.tokens),
               fmt::format("{}", row.test.batch), fmt::format("{}", row.test.depth),
               fmt::format("{:.3f}", 1e3 * row.predicted.median()), fmt::format("{:.3f}", 1e3 * row.measured.median()),
               fmt::format("{:.3f}", row.ratio.median()), fmt::format("{:.3f}", row.ratio.low()),
               fmt::format("{:.3f}", row.ratio.high()), fmt::format("{:.3f}", 1e3 * row.mean.median())});
  }
  std::printf("%s\nmemory: %.1f MB predicted, %.1f MB measured, ratio %.3f\n", table.text().c_str(),
              check.predicted_bytes / 1e6, check.measured_bytes / 1e6, check.measured_bytes / check.predicted_bytes);
}

nlohmann::ordered_json check_json(const PlanCheck& check) {
  nlohmann::ordered_json out = {{"model", check.model},
                                {"cpu", cpu_name()},
                                {"threads", check.threads},
                                {"memory",
                                 {{"predicted_bytes", check.predicted_bytes},
                                  {"measured_bytes", check.measured_bytes},
                                  {"ratio", check.measured_bytes / check.predicted_bytes}}},
                                {"tests", nlohmann::ordered_json::array()}};
  for (const PlanCheckRow& row : check.rows)
    out["tests"].push_back({{"test", row.test.kind == BenchTest::Kind::kDecode ? "decode" : "prefill"},
                            {"tokens", row.test.tokens},
                            {"depth", row.test.depth},
                            {"batch", row.test.batch},
                            {"predicted_seconds", row.predicted.median()},
                            {"measured_seconds", row.measured.median()},
                            {"mean_seconds", row.mean.median()},
                            {"ratio", row.ratio.median()},
                            {"ratios", row.ratio.values}});
  return out;
}

}  // namespace quire
