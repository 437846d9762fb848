// Runs one sequence through the executor without scheduler and sampling: for verify, perplexity and tests.
#pragma once

#include <span>
#include <vector>

#include "engine/loaded_model.h"
#include "kv/page_table.h"

namespace quire {

class SingleSequence {
 public:
  // Uses the model's cache as if nobody else did. The model must outlive it; only one at a time. adapter: Span::adapter.
  explicit SingleSequence(LoadedModel& model, int adapter = -1);

  int tokens() const { return pages_.tokens(); }
  void clear();
  // The first call after clear() has the prompt, whose length chooses the rope variant.
  // Appends and computes tokens, at most the decoder's max_rows. Returns the logits of all of them or of the last one:
  // [rows][vocab], valid until the next call. Throws Error when the context or the cache is full.
  std::span<float> append(std::span<const TokenId> ids, bool all_logits);

 private:
  LoadedModel& model_;
  const int adapter_;
  UnitPool pool_;
  PageTable pages_;
  int rope_variant_ = 0;
  ForwardInput input_;
};

// The index of the largest logit; on a tie the lowest.
TokenId argmax(std::span<const float> logits);

}  // namespace quire
