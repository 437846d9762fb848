// What was sampled for a sequence becomes part of its answer.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
#include "engine/step/samples.h"

namespace quire {

// What a sequence has got from a step. Its tokens are appended, and the client is to be told.
struct Chosen {
  std::vector<Output> outputs;      // one for each token; the last one may end the answer
  std::optional<FinishReason> end;  // the answer ends without a further token
  std::string_view error;           // with `end`
  int forced = 0;                   // tokens that were not sampled
  int accepted = 0;                 // drafted tokens that were right
  TokenIds predicted;               // on request: the token after each row, chosen or most probable
};

// Appends the sampled tokens up to the answer's end; force: and those after them that the constraint leaves no choice about.
// Throws Error or std::bad_alloc; the sequence then has to end.
Chosen take_sampled(Sequence& s, const SampleRequest& request, SampleResult&& result, bool force);

}  // namespace quire
