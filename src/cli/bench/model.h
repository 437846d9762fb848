// Times and profiles prefill and decode of a loaded model against the machine's limits.
#pragma once

#include <span>
#include <vector>

#include "cli/bench/limits.h"
#include "cli/terminal/progress.h"
#include "engine/loaded_model.h"
#include "model/adapter/adapter.h"
#include "ops/experts.h"
#include "sampling/sampler.h"

namespace quire {

struct BenchTest {
  enum class Kind : uint8_t { kPrefill, kDecode };
  Kind kind;
  int tokens;        // per sequence
  int depth;         // tokens already in its cache
  int batch;         // sequences; 1 for a prefill
  int adapters = 0;  // sequence i has the adapter i % adapters; 0: none
};

struct BenchResult {
  BenchTest test;
  Samples rates;           // tokens per second, of all sequences together
  Samples limits;          // the machine's limit at each sample, in the same unit
  Samples of_limit;        // each sample divided by its limit
  double bytes = 0;        // what a decode step, or the whole prefill, reads of weights and cache
  GatherCounts gathered;   // by one of several ranks, in all samples
  ExpertReads experts;     // in all samples; nothing if all experts are in memory
  int steps = 0;           // in all samples
  double seconds = 0;      // of all samples
  MachineRates machine{};  // medians
};

// Time by operation of the median prefill, or of the median decode step. It is one actual run, so its parts add up; a
// run that another process interrupted is unlikely to be the median.
struct BenchProfile {
  BenchTest test;
  int steps = 0;
  double seconds = 0;  // time of all steps
  StepProfile operations;
  std::array<Work, kStepOps> work{};
  MachineRates machine{};  // measured just before

  double rest() const;  // seconds outside all operations
  // Seconds per step that do not grow with the model's width: starting the loops of linear layers and attention
  // (`empty_loop` seconds each), and all small operations.
  double fixed_step_seconds(double empty_loop) const;
};

// What the sequences of the tests take of the cache.
size_t bench_cache_bytes(std::span<const BenchTest> tests, const CacheLayout& layout);
// Sets the size of the cache, if it is open and the default is too small: tests take more of a model with windows than its
// answers do, and most of the machine's memory if they must.
void reserve_cache(EngineOptions& engine, std::span<const BenchTest> tests);

// Each sequence has its own pages and a fixed pseudo-random token at each position, so tests can share the cache
// contents. Timed runs do not sample, as in llama-bench; profiled runs sample greedily. A device picks the best tokens either way,
// and brings no other logits to the host.
class ModelBench {
 public:
  // Fills the cache to the depth that the tests need. Throws Error if it is too small. The model must outlive it.
  // adapter: one of the tests', which are all of one size; the decoder knows them by their indices.
  ModelBench(LoadedModel& model, std::vector<BenchTest> tests, Progress& progress, const Adapter* adapter = nullptr);

  // Takes turns over all tests, `repetitions` times, so that changes of the machine's speed affect all of them.
  std::vector<BenchResult> run(int repetitions);
  std::vector<BenchProfile> profile(int repetitions);
  // Of each test, the profiles of all its prefills, or of all its decode steps.
  std::vector<std::vector<BenchProfile>> profiles(int repetitions);

  // Seconds of an empty parallel loop: the cost of a barrier.
  double empty_loop_seconds();

 private:
  void reserve();
  void fill(int tokens);  // of the first sequence
  // Copies the first sequence's cache, because only the time of what reads it counts, and computes the last token.
  void fill_again(int sequence, int tokens);
  void run_test(const BenchTest& test, int tokens);
  template <class Step>
  void for_steps(const BenchTest& test, int tokens, const Step& step);
  Span span(int sequence, int row, int rows, int position, int adapters) const;
  const ForwardInput& chunk(int sequence, int from, int count, int adapters = 0);
  void next_tokens(int sequences, int position, int adapters);
  void pick_best();
  Work work_of(const ForwardInput& step) const;
  std::span<float> compute(const ForwardInput& step);
  GatherCounts gather_counts() const;
  TokenId token(int sequence, int position) const;
  void profile_step(const ForwardInput& step, BenchProfile& profile);
  MachineRates measure_machine();
  void sample_greedily(std::span<float> logits, StepProfile& profile);

  LoadedModel& model_;
  Compute compute_;
  std::vector<BenchTest> tests_;
  ModelWork work_;
  Work adapter_work_;  // of one adapter and one row
  MachineProbe machine_;
  std::vector<std::vector<std::vector<int32_t>>> tables_;  // each sequence's page tables, by group of the cache layout
  ForwardInput input_;
  ExpertReads expert_reads_;             // since the test began
  std::vector<SamplerScratch> scratch_;  // one per thread
  Progress& progress_;
};

}  // namespace quire
