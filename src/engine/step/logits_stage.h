// From a step's logits to tokens and log-probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/team.h"
#include "engine/step/forward.h"
#include "engine/step/picked_row.h"
#include "engine/step/samples.h"

namespace quire {

// Works on all requests of a step in parallel.
class LogitsStage {
 public:
  // force: take tokens that a constraint leaves no choice about without sampling them. predict: fill
  // SampleResult::predicted.
  LogitsStage(Team& team, int vocab, bool force, bool predict);

  // Before the pass: what the rows of each request are sampled with, given that the drafts before them are right. Takes
  // the requests' states.
  void prepare(std::span<SampleRequest> requests);
  // After prepare(): replaces `picks` by what the requests need of so many rows of logits (ForwardInput::picks), as views of its
  // own memory.
  void choose_picks(std::span<const SampleRequest> requests, size_t rows, std::vector<std::optional<Pick>>& picks);
  // Replaces `results`. The requests are those of prepare(). Overwrites the output's logits.
  void sample(std::span<const SampleRequest> requests, const ForwardOutput& output, std::vector<SampleResult>& results);

 private:
  // What a row is sampled with, if not only with its tokens.
  struct Place {
    bool masked = false;
    bool refused = false;  // the constraint needs too much here
    bool skips_thought = false;
    std::optional<TokenId> forced;
    bool penalized = true;
    std::span<const uint32_t> penalized_tokens;
    TokenIds counted;
    std::optional<DryRun> dry_run;
  };
  struct ThreadMemory {
    SamplerScratch scratch;
    std::vector<float> row;  // a row of logits
    PickedRow picked;
    TokenIds generated;  // the answer and its drafts
  };

  std::span<uint32_t> mask(size_t place) { return std::span(masks_).subspan(place * mask_words_, mask_words_); }
  void fill_places(const SampleRequest& request, AnswerState state);
  void fill(Place& place, std::span<uint32_t> mask, const SampleRequest& request, AnswerState& state,
            size_t drafts) const;
  std::span<const TokenId> answer_and_drafts(const SampleRequest& request, ThreadMemory& memory) const;
  SampleRow row_of(const SampleRequest& request, std::span<const TokenId> generated, size_t drafts);
  void pick_rows(const SampleRequest& request, ThreadMemory& memory, std::span<std::optional<Pick>> picks);
  std::span<float> logits_at(size_t row, const ForwardOutput& output) const {
    return output.logits.subspan(row * vocab_, vocab_);
  }
  void set_logits(SampleRow& row, const SampleRequest& request, size_t at, const ForwardOutput& output,
                  ThreadMemory& memory) const;
  Sampled judge(const SampleRequest& request, size_t draft, const SampleRow& row, SamplerScratch& scratch) const;
  void sample(const SampleRequest& request, const ForwardOutput& output, ThreadMemory& memory, SampleResult& result);
  void choose(const SampleRequest& request, const ForwardOutput& output, ThreadMemory& memory, SampleResult& result);

  Team& team_;
  const size_t vocab_, mask_words_;
  const bool force_, predict_;
  std::vector<Place> places_;           // for the rows of requests with a state
  std::vector<uint32_t> masks_;         // [places][mask_words]
  std::vector<Candidates> candidates_;  // for the rows of logits
  std::vector<uint32_t> pick_masks_;    // [rows][mask_words]
  std::vector<ThreadMemory> memory_;    // one per thread
};

}  // namespace quire
