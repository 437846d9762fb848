// Runs one sequence through the executor without scheduler and sampling: for verify, perplexity and tests.
#pragma once

#include <span>
#include <vector>

#include "engine/loaded_model.h"
#include "kv/page_table.h"

namespace quire {

class SingleSequence {
 public:
  // What computes it. All must outlive the sequence.
  struct Computed {
    Executor& executor;
    const ModelConfig& config;
    const CacheShape& cache;
    int max_model_len;
  };
  // Uses the cache as if nobody else did; only one at a time. adapter: Span::adapter.
  explicit SingleSequence(const Computed& by, int adapter = -1);
  explicit SingleSequence(LoadedModel& model, int adapter = -1);

  int tokens() const { return pages_.tokens(); }
  void clear();
  // The first call after clear() has the prompt, whose length chooses the rope variant.
  // Appends and computes tokens, at most the decoder's max_rows. Returns the logits of all of them or of the last one:
  // [rows][vocab], valid until the next call; none if another stage has them. Throws Error when the context or the cache is full.
  std::span<float> append(std::span<const TokenId> ids, bool all_logits);

 private:
  const Computed by_;
  const int adapter_;
  UnitPool pool_;
  PageTable pages_;
  int rope_variant_ = 0;
  ForwardInput input_;
};

// The index of the largest logit; on a tie the lowest.
TokenId argmax(std::span<const float> logits);

}  // namespace quire
