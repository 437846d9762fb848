// Speculative decoding: guesses the next tokens of the sequences that decode, and learns from what became of them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/drafting/draft_model.h"
#include "engine/drafting/text_drafters.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "speculate/controller.h"
#include "speculate/drafts.h"

namespace quire {

// A step: choose(), the scheduler's plan, draft(), the target's forward pass, take_features(), and once the rows are
// sampled learn() for each verified draft; then finish().
//
// No answer depends on drafts: each drafted row is sampled like any other row of its position, and counts only if the
// tokens before it were right.
class DraftStage {
 public:
  // model: the drafter that computes; nullptr: none. texts: the others; nullptr: speculation is off.
  DraftStage(const EngineOptions& options, DraftModel* model, TextDrafters* texts);

  double model_seconds() const { return model_seconds_; }  // spent in this step's draft()
  bool on() const { return texts_ != nullptr; }
  // Whether speculation is on. Throws Error if a setting is not supported.
  static bool check(const EngineOptions& options);

  // Chooses drafter and depth of all running sequences: sets the number of their drafts, and the tokens unless the
  // drafter computes. most_rows: of all drafts; most_tokens: of a sequence, drafts included.
  void choose(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens);
  // Computes drafts for the planned chunks, whose pages have room for them; lowers their number where there are fewer.
  void draft(std::span<Sequence* const> sequences, std::span<Chunk> chunks);
  // Which rows of the step need hidden states.
  DraftModel::Reads reads() const { return model_ ? model_->reads() : DraftModel::Reads::kNothing; }
  // The hidden states of `count` tokens from `position` on are rows of this step, from `row` on.
  void take_features(Sequence& s, int row, int position, int count);
  // The first `verified` drafts of the sequence had rows in the step, and `accepted` of them were right. predicted: the
  // tokens that the target chose or would have chosen after each row; empty if not asked for.
  void learn(Sequence& s, int verified, int accepted, std::span<const TokenId> predicted);
  bool wants_predictions() const { return texts_ && texts_->has(TextDrafters::kLookahead); }
  // An answer has ended.
  void remember(const Sequence& s) {
    if (texts_ && s.request->speculate) texts_->remember(s);
  }
  // The step took so long, rows of prompts excluded, and gave so many tokens to the sequences that decode.
  void finish(double seconds, int tokens);
  void add_stats(EngineStats& stats) const { stats.drafters = stats_; }

 private:
  DrafterStats& stats_of(int drafter);
  void choose_depths(const StepCosts& costs, int decoding, int most_rows);
  void propose(Sequence& s, int index, int depth);

  const bool always_;
  const int depth_;
  DraftModel* const model_;
  TextDrafters* const texts_;
  SpeculationController controller_;
  uint64_t step_ = 0;
  double model_seconds_ = 0;
  decltype(EngineStats::drafters) stats_;

  // Reused from step to step.
  struct Proposed {
    Sequence* sequence;
    size_t begin, count;  // of tokens_; a drafter that computes has none yet
  };
  std::vector<Proposed> proposed_;  // the candidates' tokens
  TokenIds tokens_;
  std::vector<DraftCandidate> candidates_;
  std::vector<double> seconds_;
  DraftChoice choice_;
  Drafts drafts_;
  std::vector<DraftTask> tasks_;
};

}  // namespace quire
