// Speculative decoding: guesses the next tokens of the sequences that decode, and learns from what became of them.
#pragma once

#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "speculate/controller.h"
#include "speculate/drafts.h"

namespace quire {

// Before each step, draft() sets the drafts of sequences; the step verifies them. No answer depends on them: each
// drafted row is sampled like any other row of its position, and counts only if the tokens before it were right.
class DraftStage {
 public:
  // most_tokens: of all sequences together that drafters may keep; further sequences get no drafts.
  DraftStage(const EngineOptions& options, size_t most_tokens);

  bool on() const { return on_; }
  // Whether speculation is on. Throws Error if a setting is not supported.
  static bool check(const EngineOptions& options);
  static size_t memory_bytes(size_t tokens);  // of the drafters

  // Sets the drafts of all running sequences. most_rows: of all drafts; most_tokens: of a sequence, drafts included.
  void draft(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens);
  // The first `verified` drafts of the sequence had rows in the step, and `accepted` of them were right.
  void learn(Sequence& s, int verified, int accepted);
  // The step took so long, rows of prompts excluded, and gave so many tokens to the sequences that decode.
  void finish(double seconds, int tokens);
  const DrafterStats& stats() const { return stats_; }

 private:
  bool follow(Sequence& s);
  void choose(const StepCosts& costs, int decoding, int most_rows);
  // Proposes a draft, in drafts_. Returns its tokens.
  std::span<const TokenId> propose(Sequence& s, int depth);

  const bool on_, always_;
  const int depth_;
  const size_t most_tokens_;
  size_t tokens_ = 0;  // that drafters have memory for
  SpeculationController controller_;
  DrafterStats stats_;

  // Reused from step to step.
  std::vector<Sequence*> sequences_;  // of the candidates
  std::vector<DraftCandidate> candidates_;
  std::vector<double> seconds_;
  DraftChoice choice_;
  Drafts drafts_;
};

}  // namespace quire
