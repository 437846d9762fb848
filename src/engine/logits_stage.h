// From a step's logits to tokens and log-probabilities.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/sequence.h"
#include "sampling/sampler.h"

namespace quire {

// Samples all rows of a step in parallel; what is done with the results is the caller's business.
class LogitsStage {
 public:
  // One row of logits and its result.
  struct Row {
    Sequence* sequence;
    int position;  // of the row's token
    bool samples;  // chooses the next token; otherwise describes the prompt's token at position + 1
    std::optional<Sampled> sampled = {};  // none if the row samples and the request wants no tokens
    std::exception_ptr failure = {};      // of sampling it

    // Rethrows the failure, if there is one.
    std::optional<Sampled>& result() {
      if (failure) std::rethrow_exception(failure);
      return sampled;
    }
  };

  LogitsStage(Team& team, int vocab);

  // Starts a new step. Rows are added in the order of the decoder's logits.
  void clear() { rows_.clear(); }
  void add(Sequence& s, int position, bool samples) { rows_.push_back({&s, position, samples}); }
  std::span<Row> rows() { return rows_; }

  // The first token of a choice forked from the sequence of row `i`. Leaves the row's logits as they are, so it comes
  // before sample(). Throws Error and std::bad_alloc.
  std::optional<Sampled> sample_choice(size_t i, Sequence& choice, std::span<const float> logits);
  // Fills the results. logits: [rows][vocab], overwritten.
  void sample(std::span<float> logits);

 private:
  Team& team_;
  const size_t vocab_;
  std::vector<Row> rows_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::vector<float> copy_;              // one row
};

}  // namespace quire
