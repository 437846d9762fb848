// Runs one sequence through the decoder without scheduler and sampling: for verify, perplexity and tests.
#pragma once

#include <span>
#include <vector>

#include "engine/loaded_model.h"

namespace quire {

class SingleSequence {
 public:
  // Uses the model's pages from page 0. The model must outlive it; only one at a time.
  explicit SingleSequence(LoadedModel& model);

  int tokens() const { return tokens_; }
  void clear() { tokens_ = 0; }
  // The first call after clear() has the prompt, whose length chooses the rope variant.
  // Appends and computes tokens, at most the decoder's max_rows. Returns the logits of all of them or of the last one:
  // [rows][vocab], valid until the next call. Throws Error when the context is full.
  std::span<float> append(std::span<const TokenId> ids, bool all_logits);

 private:
  LoadedModel& model_;
  int tokens_ = 0, rope_variant_ = 0;
  std::vector<int32_t> pages_;
  std::vector<Row> rows_;
};

// The index of the largest logit; on a tie the lowest.
TokenId argmax(std::span<const float> logits);

}  // namespace quire
