// A step as a value: its input and its results.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
#include "engine/step/forward.h"
#include "sampling/sampler.h"

namespace quire {

// Rows of logits of one sequence, and what to do with them.
struct SampleRequest {
  Sequence* sequence = nullptr;
  size_t row = 0;                   // the first row of logits
  int position = 0;                 // of its token
  bool samples = false;             // choose tokens; otherwise describe the prompt's token at position + 1
  int drafts = 0;                   // that many rows follow, of the sequence's drafts
  int first_draft = 0;              // of them, among all drafts of the step
  bool decodes = false;             // the sequence was decoding before the step
  bool shares_row = false;          // other choices of the request sample from it too
  std::exception_ptr failure = {};  // found before the step; the result has it
};

struct StepInput {
  ForwardInput forward;
  std::vector<SampleRequest> samples;
};

// What a sequence has got from a step. Its tokens are appended, and the client is to be told.
struct Chosen {
  std::vector<Output> outputs;      // one for each token; the last one may end the answer
  std::optional<FinishReason> end;  // the answer ends without a further token
  std::string_view error;           // with `end`
  int forced = 0;                   // tokens that were not sampled
  int accepted = 0;                 // drafted tokens that were right
  TokenIds predicted;               // on request: the token after each row, chosen or most probable
};

struct SampleResult {
  Chosen chosen = {};               // if the request samples
  Sampled described = {};           // otherwise
  std::exception_ptr failure = {};  // Error or std::bad_alloc; of this sequence alone

  void rethrow_failure() const {
    if (failure) std::rethrow_exception(failure);
  }
};

struct StepOutput {
  std::vector<SampleResult> results;  // of the requests, in their order
};

}  // namespace quire
