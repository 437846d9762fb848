// One answer being generated.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/answer/answer_state.h"
#include "engine/cache/cached_pages.h"
#include "engine/drafting/sequence_drafting.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "kv/page_table.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"

namespace quire {

struct Sequence {
  SequenceId id{};                        // set by Roster
  std::shared_ptr<RequestState> request;  // null once the answer has ended and the client knows
  int choice = 0;
  bool forks_pending = false;  // choice 0 of n > 1: the other choices fork where its prompt ends

  TokenIds tokens;         // prompt and answer
  int computed = 0;        // tokens whose keys and values are in the pages
  bool begun = true;       // false from admission to the first step that computes it
  bool decodes = false;    // its tokens have been computed since admission, but for those generated since
  bool wants_row = false;  // the next row of logits as a whole (SampleRequest::whole)
  TokenIds drafts;         // guesses of its next tokens, for the next step
  // What the drafts were drawn from, for the rejection rule (speculate/rejection.h); valid in the step. Empty: each draft
  // is judged by the token that is sampled at its place. Weights without tokens: the draft was certain.
  std::vector<TokenWeights> draft_weights;
  std::unique_ptr<SequenceDrafting> drafting;  // the draft stage's own
  int drafted = 0, accepted = 0;               // drafted tokens that were verified, and those of them that were right
  PageTable pages;
  CachedPages cached;  // the page cache's own

  AnswerState state;
  double mirostat_mu;  // after the answer so far
  StopMatcher stop;
  std::unique_ptr<StopFinder> stop_finder;  // instead of `stop`; null: none
  Clock::time_point first_token;
  bool given_up = false;  // its client has got an error as its last output: it ends without a further word

  // `so_far`: the prompt, and for a fork nothing more. Reserves memory for all tokens.
  Sequence(std::shared_ptr<RequestState> r, int choice_index, TokenIds so_far, const Tokenizer* tokenizer);

  bool ended() const { return !request; }
  int generated() const { return static_cast<int>(tokens.size()) - request->prompt_tokens; }
  // Every row of the prompt must be computed, so cached pages are of no use.
  bool wants_all_rows() const {
    if (request->sampling.prompt_logprobs) return generated() == 0 && choice == 0;
    const PromptArray array = request->array;
    return request->pooling == Pooling::kMean || request->pooling == Pooling::kFirst ||
           array == PromptArray::kHiddenStates || array == PromptArray::kTokenLogits;
  }
  bool wants_all_logits() const {
    return (request->sampling.prompt_logprobs && wants_all_rows()) || request->array == PromptArray::kTokenLogits;
  }

  // Appends a sampled token. The result is for the client; its finish reason says whether the answer has ended.
  Output append(const Sampled& sampled);
  // What tells the client that the answer has ended; with pooling and kStop it has the embedding. Never throws std::bad_alloc:
  // without memory it is kError.
  Output finish(FinishReason reason, std::string_view error = {});

 private:
  void find_stop(std::string delta, Output& out);
  Usage usage() const;
  void attach_prompt_logprobs(Output& out) const;  // to the first one
  Output ending(FinishReason reason, std::string_view error);
};

// Nodes move between lists without allocating.
using Sequences = std::list<Sequence>;

}  // namespace quire
