// Requests to sample rows of a step, and the tokens that were chosen. Sampling them touches no sequence.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/answer/answer_state.h"
#include "engine/request_state.h"
#include "sampling/sampler.h"

namespace quire {

// Rows of logits of one sequence, and what to do with them. The views are of the sequence and stay as they are until the
// rows are sampled.
struct SampleRequest {
  std::shared_ptr<const RequestState> request;  // sampling reads only what no step changes
  int choice = 0;
  size_t row = 0;        // the first row of logits
  bool samples = false;  // choose tokens; otherwise describe the prompt's token `next`
  TokenId next = kNoToken;
  std::span<const TokenId> tokens = {};  // prompt and answer so far
  std::span<const TokenId> drafts = {};  // that many further rows follow
  std::span<const TokenWeights> draft_weights =
      {};                                 // what the drafts were drawn from, to be judged; empty: they were not
  std::optional<AnswerState> state = {};  // after `tokens`, unless it is plain; LogitsStage::prepare() takes it
  int place = -1;                         // the first row's in LogitsStage; -1: rows depend on tokens alone
  double mirostat_mu = 0;
  bool shares_row = false;          // other choices of the request sample from it too
  bool whole = false;               // needs the whole row: what a device picked was not enough
  std::exception_ptr failure = {};  // found before the step; the result has it

  int generated() const { return static_cast<int>(tokens.size()) - request->prompt_tokens; }
};

struct SampledToken {
  Sampled sampled;
  bool forced = false;         // the constraint left no choice
  bool skips_thought = false;  // ThoughtWatch::skip() before it
};

struct SampleResult {
  std::vector<SampledToken> tokens;  // the first, and one more after each draft that was right
  bool dead_end = false;             // nothing is allowed after them
  bool refused = false;              // the constraint needs too much there
  bool lost = false;                 // the row is needed whole, and is lost (ForwardOutput::picked)
  TokenIds predicted = {};           // on request, with drafts: the most probable token of each row
  Sampled described = {};            // if the request does not sample
  std::exception_ptr failure = {};   // Error or std::bad_alloc; of this sequence alone
};

}  // namespace quire
