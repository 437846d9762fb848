// From a step's logits to tokens and log-probabilities.
#pragma once

#include <span>
#include <vector>

#include "base/team.h"
#include "engine/step/step.h"
#include "sampling/sampler.h"

namespace quire {

// Samples all sequences of a step in parallel. The caller delivers the results.
class LogitsStage {
 public:
  // force: take tokens that a constraint leaves no choice about without sampling them. predict: fill Chosen::predicted of
  // sequences with drafts.
  LogitsStage(Team& team, int vocab, bool force, bool predict);

  // Replaces `results`. logits: [rows][vocab], overwritten.
  void sample(std::span<const SampleRequest> requests, std::span<float> logits, std::vector<SampleResult>& results);

 private:
  struct ThreadMemory {
    SamplerScratch scratch;
    std::vector<float> row;  // of logits
  };

  void sample(const SampleRequest& request, std::span<float> logits, ThreadMemory& memory, SampleResult& result) const;

  Team& team_;
  const size_t vocab_;
  const bool force_, predict_;
  std::vector<ThreadMemory> memory_;  // one per thread
};

}  // namespace quire
