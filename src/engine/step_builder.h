// Turns a plan into a step: the order for the executor, and the rows to sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/cache/page_cache.h"
#include "engine/drafting/draft_model.h"
#include "engine/loaded_model.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step/forward.h"
#include "engine/step/samples.h"

namespace quire {

// What the engine alone knows of a SampleRequest.
struct Sampling {
  Sequence* sequence = nullptr;  // nullptr: dropped
  int position = 0;              // position of the first row's token
  int first_draft = 0;           // among all drafts of the step
  bool decodes = false;          // the sequence was decoding before the step
  int tokens = 0;                // that it got
};

// Its views are of the sequences: their tokens, drafts and pages stay as they are until the step is computed.
struct EngineStep {
  std::vector<Sequence*> sequences;  // the sequence of each chunk of the plan
  ForwardInput forward;
  std::vector<size_t> pooled;  // the chunks of forward.pooled
  struct KeptLogits {
    size_t chunk, row, rows;  // row: the first one in the logits
    bool last;                // the prompt ends with them
  };
  std::vector<KeptLogits> kept;  // logits that requests get as they are
  std::vector<SampleRequest> samples;
  std::vector<Sampling> sampling;  // one for each of `samples`
  Sequences forks;                 // choices whose first token it samples; they are not in the roster yet
  size_t logits = 0;               // rows that want them
  int drafts = 0;

  void clear();  // keeps the memory
};

// The results of an EngineStep.
struct StepResults {
  std::vector<SampleResult> samples;  // one for each SampleRequest
  uint64_t expert_bytes = 0;          // weights of experts that it has read
};

class StepBuilder {
 public:
  // The model and the cache must outlive it. reads: the hidden states that the drafter needs.
  StepBuilder(const LoadedModel& model, const PageCache& cache, DraftModel::Reads reads);

  // Adds a sequence's rows, which then count as computed. Its pages have room for them.
  void add(Sequence& s, const Chunk& chunk, EngineStep& step) const;
  // Adds the row of the token that `pick` finds in row `row` of the last pass's logits; its own token is found alike. Its pages have
  // room for it.
  static void add_ahead(const Sequence& s, int row, const Pick& pick, ForwardInput& forward);

 private:
  void add_pooled(Sequence& s, const Chunk& chunk, int row, size_t logits, EngineStep& step) const;
  void add_rows(Sequence& s, const Chunk& chunk, EngineStep& step) const;
  void add_sample(Sequence& s, const Chunk& chunk, int position, EngineStep& step) const;
  void fork(const SampleRequest& request, Sampling sampling, EngineStep& step) const;

  const LoadedModel& model_;
  const PageCache& cache_;
  const Tokenizer* const tokenizer_;
  const DraftModel::Reads reads_;
};

}  // namespace quire
