#include "cli/bench/model.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "engine/runtime.h"

namespace quire {
namespace {

StepLoad load_of(const ForwardInput& step) {
  StepLoad load;
  for (const Span& span : step.spans) load.spans.push_back({1, span.rows, span.position});
  load.logits = static_cast<int>(std::ranges::count_if(step.rows, [](const Row& row) { return row.wants_logits; }));
  return load;
}

constexpr int kWarmTokens = 128;  // computed before the first sample of a test

// Adapters have float32 products.
std::vector<Activations> units_with(const ModelWork& work, bool adapters) {
  std::vector<Activations> units = units_of(work);
  if (adapters && std::ranges::find(units, Activations::kF32) == units.end()) units.push_back(Activations::kF32);
  return units;
}

int cached_tokens(const BenchTest& test) { return test.depth + test.tokens; }

// The most tokens(test) of the tests in which a sequence takes part, for each sequence.
template <class Tokens>
std::vector<int> most_by_sequence(std::span<const BenchTest> tests, const Tokens& tokens) {
  std::vector<int> most;
  for (const BenchTest& test : tests) {
    const auto batch = static_cast<size_t>(test.batch);
    most.resize(std::max(most.size(), batch));
    for (int& of_one : std::span(most).first(batch)) of_one = std::max(of_one, tokens(test));
  }
  return most;
}

// Whole tables in groups with windows, too: tests go back to earlier positions.
size_t table_pages(int tokens) { return static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens); }

}  // namespace

double BenchProfile::rest() const {
  return seconds - std::accumulate(operations.seconds.begin(), operations.seconds.end(), 0.0);
}

double BenchProfile::fixed_step_seconds(double empty_loop) const {
  double fixed = rest();
  for (size_t i = 0; i < kStepOps; ++i) {
    const auto op = static_cast<StepOp>(i);
    if (op == StepOp::kSampling) continue;
    const bool grows = work[i].total_multiply_adds() > 0;
    fixed += grows ? std::min(empty_loop * static_cast<double>(operations.calls[i]), operations.seconds[i])
                   : operations.seconds[i];
  }
  return fixed / steps;
}

size_t bench_cache_bytes(std::span<const BenchTest> tests, const CacheLayout& layout) {
  size_t bytes = 0;
  for (const int tokens : most_by_sequence(tests, cached_tokens))
    bytes += layout.groups().size() * table_pages(tokens) * layout.unit_bytes() + layout.state_bytes();
  return bytes;
}

void reserve_cache(EngineOptions& engine, std::span<const BenchTest> tests) {
  if (engine.kv_cache_bytes > 0) return;
  const ModelFacts facts = read_model_facts(engine);
  const MemoryPlan plan = plan_memory(facts, engine, this_machine(engine));
  const size_t needed = bench_cache_bytes(tests, plan.layout);
  const size_t planned = plan.cache.bytes + (plan.host ? plan.host->cache : 0);
  if (planned < needed) engine.kv_cache_bytes = needed;
}

ModelBench::ModelBench(LoadedModel& model, std::vector<BenchTest> tests, Progress& progress, const Adapter* adapter)
    : model_(model),
      compute_(model.runtime.cpu.compute(model.plan.activation_type)),
      tests_(std::move(tests)),
      work_(model_work(model.target.config, model.target.weights, compute_.activations, model.cache.layout.type())),
      machine_(compute_, units_with(work_, adapter != nullptr)),
      scratch_(static_cast<size_t>(model.runtime.team.size())),
      progress_(progress) {
  if (adapter) {
    adapter_work_.bytes = static_cast<double>(adapter->memory.size());
    for (const auto& [linear, change] : adapter->changes) {
      for (const Linear* w : {&change.down, &change.up})
        adapter_work_.multiply_adds[static_cast<size_t>(Activations::kF32)] +=
            static_cast<double>(w->weight.rows) * w->weight.cols;
    }
  }
  reserve();
  progress_.stage("filling the KV cache");
  const std::vector<int> depths = most_by_sequence(tests_, [](const BenchTest& test) { return test.depth; });
  fill(std::ranges::max(depths));
  for (size_t s = 1; s < depths.size(); ++s) fill_again(static_cast<int>(s), depths[s]);
}

// The processor's rates, or those of the device that computes.
MachineRates ModelBench::measure_machine() {
  const auto device = model_.runtime.backend().measure_rates();
  if (!device) return machine_.measure();
  MachineRates rates{.bandwidth = device->bandwidth, .multiply_adds = {}};
  rates.multiply_adds.fill(device->multiply_adds > 0 ? device->multiply_adds : std::numeric_limits<double>::infinity());
  const auto set = [&](Activations unit, double rate) {
    if (rate > 0) rates.multiply_adds[static_cast<size_t>(unit)] = rate;
  };
  set(Activations::kFp8, device->fp8_multiply_adds);
  set(Activations::kInt8, device->int8_multiply_adds);
  return rates;
}

std::vector<BenchResult> ModelBench::run(int repetitions) {
  std::vector<BenchResult> results;
  std::vector<std::vector<MachineRates>> machine(tests_.size());
  for (const BenchTest& test : tests_)
    results.push_back({.test = test, .rates = {}, .limits = {}, .of_limit = {}, .experts = {}});
  const auto samples = static_cast<size_t>(repetitions) * tests_.size();
  progress_.stage("measuring");
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t t = 0; t < tests_.size(); ++t) {
      progress_.step(static_cast<size_t>(repetition) * tests_.size() + t, samples);
      const BenchTest& test = tests_[t];
      BenchResult& r = results[t];
      if (repetition == 0) run_test(test, std::min(test.tokens, kWarmTokens));
      const MachineRates rates = measure_machine();
      machine[t].push_back(rates);
      expert_reads_ = {};
      const GatherCounts before = gather_counts();
      const double seconds = seconds_of([&] { run_test(test, test.tokens); });
      r.gathered += gather_counts() - before;
      r.experts += expert_reads_;
      r.seconds += seconds;
      double least = 0, bytes = 0;
      int steps = 0;
      for_steps(test, test.tokens, [&](const ForwardInput& step) {
        const Work work = work_of(step);
        least += least_seconds(work, rates);
        bytes += work.bytes;
        ++steps;
      });
      r.steps += steps;
      const double tokens = static_cast<double>(test.tokens) * test.batch;
      r.rates.add(tokens / seconds);
      r.limits.add(tokens / least);
      r.of_limit.add(least / seconds);
      r.bytes = test.kind == BenchTest::Kind::kDecode ? bytes / steps : bytes;
    }
  }
  for (size_t t = 0; t < tests_.size(); ++t) results[t].machine = median_of(machine[t]);
  return results;
}

std::vector<std::vector<BenchProfile>> ModelBench::profiles(int repetitions) {
  std::vector<std::vector<BenchProfile>> runs(tests_.size());
  const auto samples = static_cast<size_t>(repetitions) * tests_.size();
  progress_.stage("profiling");
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t t = 0; t < tests_.size(); ++t) {
      progress_.step(static_cast<size_t>(repetition) * tests_.size() + t, samples);
      const BenchTest& test = tests_[t];
      const MachineRates rates = measure_machine();
      const bool decode = test.kind == BenchTest::Kind::kDecode;
      const size_t first = runs[t].size();
      for_steps(test, test.tokens, [&](const ForwardInput& step) {
        if (decode || runs[t].size() == first) runs[t].push_back({.test = test, .operations = {}, .machine = rates});
        profile_step(step, runs[t].back());
      });
    }
  }
  return runs;
}

std::vector<BenchProfile> ModelBench::profile(int repetitions) {
  std::vector<BenchProfile> medians;
  for (auto& all : profiles(repetitions)) {
    const auto middle = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end(),
                     [](const BenchProfile& a, const BenchProfile& b) { return a.seconds < b.seconds; });
    medians.push_back(*middle);
  }
  return medians;
}

std::span<float> ModelBench::compute(const ForwardInput& step) {
  model_.executor().launch(step);
  const ForwardOutput& output = model_.executor().wait();
  expert_reads_ += output.expert_reads;
  return output.logits;
}

GatherCounts ModelBench::gather_counts() const { return model_.gathered(); }

void ModelBench::profile_step(const ForwardInput& step, BenchProfile& profile) {
  model_.decoder()->profile(&profile.operations);
  profile.seconds += seconds_of([&] { sample_greedily(compute(step), profile.operations); });
  model_.decoder()->profile(nullptr);
  ++profile.steps;
  const auto work = step_work(work_, load_of(step));
  for (size_t i = 0; i < kStepOps; ++i) profile.work[i] += work[i];
}

Work ModelBench::work_of(const ForwardInput& step) const {
  Work work = total_work(step_work(work_, load_of(step)));
  std::vector<int> read;
  for (const Span& span : step.spans) {
    if (span.adapter < 0) continue;
    Work of_span = adapter_work_;
    for (double& count : of_span.multiply_adds) count *= span.rows;
    if (std::ranges::find(read, span.adapter) != read.end()) of_span.bytes = 0;
    read.push_back(span.adapter);
    work += of_span;
  }
  return work;
}

double ModelBench::empty_loop_seconds() {
  constexpr int kLoops = 2000;
  Samples samples;
  for (int i = 0; i < 5; ++i) {
    samples.add(seconds_of([&] {
                  for (int loop = 0; loop < kLoops; ++loop)
                    model_.runtime.team.for_tiles(8 * model_.runtime.team.size(), [](int, int) {});
                }) /
                kLoops);
  }
  return samples.median();
}

void ModelBench::reserve() {
  const ModelInfo& info = model_.info;
  for (const BenchTest& test : tests_) {
    if (cached_tokens(test) > info.max_model_len)
      throw invalid("a test needs {} tokens of context, but the maximum is {}; lower -p, -n or -d", cached_tokens(test),
                    info.max_model_len);
  }
  const auto groups = model_.cache.layout.groups().size();
  int units = 0;
  for (const int tokens : most_by_sequence(tests_, cached_tokens)) {
    for (std::vector<int32_t>& table : tables_.emplace_back(groups)) {
      table.resize(table_pages(tokens));
      std::iota(table.begin(), table.end(), units);
      units += static_cast<int>(table.size());
    }
  }
  if (units > info.kv_pages)
    throw no_resource("the tests need {} pages of KV cache, but there are only {}; set --kv-cache-size to {}MiB", units,
                      info.kv_pages, (static_cast<size_t>(units) * model_.cache.layout.unit_bytes() >> 20) + 1);
}

void ModelBench::fill(int tokens) {
  for (int count, filled = 0; filled < tokens; filled += count) {
    count = std::min(model_.plan.limits.max_rows, tokens - filled);
    compute(chunk(0, filled, count));
  }
}

void ModelBench::fill_again(int sequence, int tokens) {
  if (tokens == 0) return;
  chunk(sequence, tokens - 1, 1);
  const auto &from = tables_[0], &to = tables_[static_cast<size_t>(sequence)];
  for (size_t group = 0; group < to.size(); ++group) {
    for (size_t page = 0; page < table_pages(tokens); ++page)
      input_.changes.copies.push_back({.of_state = false, .from = from[group][page], .to = to[group][page]});
  }
  if (model_.cache.states > 0) input_.changes.copies.push_back({.of_state = true, .from = 0, .to = sequence});
  compute(input_);
  input_.changes.clear();
}

void ModelBench::run_test(const BenchTest& test, int tokens) {
  Executor& executor = model_.executor();
  const bool ahead = test.kind == BenchTest::Kind::kDecode && model_.options.run_ahead && executor.runs_ahead() &&
                     !model_.host_experts && model_.cache.states == 0;
  if (!ahead) return for_steps(test, tokens, [&](const ForwardInput& step) { compute(step); });
  // As the engine does (engine/ahead/ahead_step.h): a step is launched before the last one has ended.
  std::array<ForwardInput, 2> steps;
  int launched = 0;
  for_steps(test, tokens, [&](const ForwardInput& step) {
    ForwardInput& next = steps[static_cast<size_t>(launched % 2)];
    next = step;
    if (launched > 0) {
      next.picked.resize(next.rows.size());
      std::iota(next.picked.begin(), next.picked.end(), 0);
    }
    executor.launch(next);
    if (launched++ > 0) executor.wait();
  });
  executor.wait();
}

// What greedy requests need of a device's logits.
void ModelBench::pick_best() {
  if (!model_.executor().picks_logits()) return;
  const auto wanted = std::ranges::count(input_.rows, true, &Row::wants_logits);
  input_.picks.assign(static_cast<size_t>(wanted), Pick{.best = 1});
}

template <class Step>
void ModelBench::for_steps(const BenchTest& test, int tokens, const Step& step) {
  if (test.kind == BenchTest::Kind::kDecode) {
    for (int i = 0; i < tokens; ++i) {
      next_tokens(test.batch, test.depth + i, test.adapters);
      pick_best();
      step(input_);
    }
    return;
  }
  const int most = model_.plan.limits.max_rows;
  for (int at = 0; at < tokens; at += most) {
    const int count = std::min(most, tokens - at);
    chunk(0, test.depth + at, count, test.adapters);
    input_.rows.back().wants_logits = model_.target.config.has_logits && at + count == tokens;
    pick_best();
    step(input_);
  }
}

// A sequence's state follows its steps, even where a test goes back to earlier positions: only the time counts.
Span ModelBench::span(int sequence, int row, int rows, int position, int adapters) const {
  return {.row = row,
          .rows = rows,
          .position = position,
          .tables = tables_[static_cast<size_t>(sequence)],
          .state = model_.cache.states > 0 ? sequence : -1,
          .adapter = adapters > 0 ? sequence % adapters : -1};
}

const ForwardInput& ModelBench::chunk(int sequence, int from, int count, int adapters) {
  input_.rows.clear();
  for (int i = 0; i < count; ++i) input_.rows.push_back({token(sequence, from + i), from + i, false});
  input_.spans.assign(1, span(sequence, 0, count, from, adapters));
  return input_;
}

void ModelBench::next_tokens(int sequences, int position, int adapters) {
  input_.rows.clear();
  input_.spans.clear();
  for (int s = 0; s < sequences; ++s) {
    input_.spans.push_back(span(s, s, 1, position, adapters));
    input_.rows.push_back({token(s, position), position, true});
  }
}

// Tests go back to earlier positions with a later state: as fast, though not the right tokens.

TokenId ModelBench::token(int sequence, int position) const {
  return static_cast<TokenId>((static_cast<uint64_t>(sequence) * 7919 + static_cast<uint64_t>(position) * 104729 + 17) %
                              static_cast<uint64_t>(model_.target.config.vocab));
}

void ModelBench::sample_greedily(std::span<float> logits, StepProfile& profile) {
  if (logits.empty()) return;
  const auto vocab = static_cast<size_t>(model_.target.config.vocab);
  SamplingParams greedy;
  greedy.temperature = 0;
  profile.start();
  model_.runtime.team.for_tiles(static_cast<int>(logits.size() / vocab), [&](int i, int thread) {
    sample(
        greedy,
        {.logits = logits.subspan(static_cast<size_t>(i) * vocab, vocab), .prompt = {}, .generated = {}, .banned = {}},
        scratch_[static_cast<size_t>(thread)]);
  });
  profile.mark(StepOp::kSampling);
}

}  // namespace quire
