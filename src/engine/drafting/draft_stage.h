// Speculative decoding: guesses the next tokens of the sequences that decode, and learns from what became of them.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "engine/drafting/draft_model.h"
#include "engine/drafting/draft_sampler.h"
#include "engine/drafting/text_drafters.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "speculate/controller.h"
#include "speculate/lookup/drafts.h"

namespace quire {

// A step: choose(), the scheduler's plan, draft(), the target's forward pass, take_features(), and once the rows are
// sampled learn() for each verified draft; then finish().
//
// No answer depends on drafts: each drafted row is sampled like any other row of its position, and counts only if the
// tokens before it were right. (With --speculative-acceptance rejection the draws depend on the drafts, but not their
// distribution.) A drafter that fails, or has no memory, ends no answer: its sequences go on without it, and after
// kMostErrors failures all do.
class DraftStage {
 public:
  static constexpr int kMostRows = 64;  // drafted rows of a step
  static constexpr uint64_t kMostErrors = 4;

  // model: the drafter that computes; nullptr: none. texts: the others; nullptr: speculation is off.
  DraftStage(const EngineOptions& options, DraftModel* model, TextDrafters* texts, Team& team, int vocab);
  // What the constructor allocates.
  static size_t memory_bytes(const EngineOptions& options, bool has_model, int vocab, int threads);

  double model_seconds() const { return model_seconds_; }  // spent in this step's draft()
  bool on() const { return texts_ != nullptr; }

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
  bool wants_predictions() const { return texts_ && texts_->has(DrafterKind::kLookahead); }
  // An answer has ended.
  void remember(const Sequence& s);
  // The step took so long, rows of prompts excluded, and gave so many tokens to the sequences that decode.
  void finish(double seconds, int tokens);
  // Allocates only the first time.
  void add_stats(EngineStats& stats) const { stats.drafters = stats_; }

 private:
  int model_index() const { return static_cast<int>(texts_->kinds().size()); }
  DrafterStats& stats_of(int drafter) { return stats_[static_cast<size_t>(drafter)]; }
  bool may_draft(const Sequence& s, int drafter) const;
  void count_error(int drafter, std::string_view what);
  void fail(Sequence& s, int drafter, std::string_view what);
  void begin(Sequence& s);
  void begin_admitted(std::span<Sequence* const> sequences);
  void choose_drafts(Sequences& running, const StepCosts& costs, int most_rows, int most_tokens);
  void choose_depths(const StepCosts& costs, int decoding, int most_rows);
  void propose(Sequence& s, int index, int depth);
  void propose_text(Sequence& s, int drafter, int depth);
  bool drafts_by_model(const Sequence& s, const Chunk& chunk) const;
  void draft_by_model(std::span<Sequence* const> sequences, std::span<const Chunk> chunks);

  const bool always_;
  const int depth_;
  DraftModel* const model_;
  TextDrafters* const texts_;
  SpeculationController controller_;
  uint64_t step_ = 0;
  double model_seconds_ = 0;
  std::vector<DrafterStats> stats_;  // by drafter: the texts' kinds, then the model
  uint32_t failed_ = 0;              // bit i: drafter i drafts for nobody
  BestTokenPicker best_;
  std::optional<DraftSampler> sampler_;  // none: drafts are the most probable tokens

  // Reused from step to step.
  struct Proposed {
    Sequence* sequence;
    size_t begin, count;  // a range of tokens_; empty until a drafter that computes has run
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
