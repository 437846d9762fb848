// Prefill and decode of a loaded model, timed and profiled beside the machine's limits.
#pragma once

#include <vector>

#include "cli/bench/limits.h"
#include "engine/loaded_model.h"
#include "sampling/sampler.h"

namespace quire {

struct BenchTest {
  enum class Kind : uint8_t { kPrefill, kDecode };
  Kind kind;
  int tokens;  // of each sequence
  int depth;   // tokens in its cache before
  int batch;   // sequences; a prefill has one
};

struct BenchResult {
  BenchTest test;
  Samples rates;           // tokens a second, of all sequences together
  Samples limits;          // what the machine allowed beside each sample, in the same unit
  Samples of_limit;        // each sample by its limit
  double bytes = 0;        // of weights and cache, read in a step of decode or for the whole prompt
  MachineRates machine{};  // medians
};

// Where the time went: of the prefill, or of the single step of decode, that took the median time. One that happened,
// so that its parts add up; a step that something else on the machine interrupted is hardly the median.
struct BenchProfile {
  BenchTest test;
  int steps = 0;
  double seconds = 0;  // of all its steps
  StepProfile operations;
  std::array<Work, kStepOps> work{};
  MachineRates machine{};  // beside it

  double rest() const;  // seconds that no operation took
  // Seconds of a step that do not grow with the model's width: loops (`empty_loop` seconds each) of linears and
  // attention, and all of the small operations.
  double fixed_step_seconds(double empty_loop) const;
};

// Sequences with pages of their own, fed with tokens that are random but always the same: so what one test leaves in
// the cache is what another would have written. Tests do not sample, as in llama-bench; profiled runs do, greedily.
class ModelBench {
 public:
  // Fills the cache as deep as the tests need. Throws Error when they do not fit. The model outlives it.
  ModelBench(LoadedModel& model, std::vector<BenchTest> tests);

  // `repetitions` rounds over all tests, so that a change of the machine's speed meets all alike.
  std::vector<BenchResult> run(int repetitions);
  std::vector<BenchProfile> profile(int repetitions);

  // Seconds of a loop that does nothing: what a barrier costs.
  double empty_loop_seconds();

 private:
  void reserve();
  void fill(int sequence, int tokens);
  void run_test(const BenchTest& test, int tokens);
  template <class Step>
  void for_steps(const BenchTest& test, int tokens, const Step& step);
  Batch chunk(int sequence, int from, int count);
  Batch next_tokens(int sequences, int position);
  TokenId token(int sequence, int position) const;
  void profile_step(const Batch& batch, BenchProfile& profile);
  void sample_greedily(std::span<float> logits, StepProfile& profile);

  LoadedModel& model_;
  Compute compute_;
  std::vector<BenchTest> tests_;
  MachineProbe machine_;
  std::vector<std::vector<int32_t>> pages_;  // of each sequence
  std::vector<int> filled_;                  // tokens of each sequence in the cache
  std::vector<Row> rows_;
  std::vector<Span> spans_;
  std::vector<SamplerScratch> scratch_;  // one a thread
};

}  // namespace quire
