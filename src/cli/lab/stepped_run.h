// Runs requests that begin at given steps, and tells what each step of the engine did.
#pragma once

#include <span>
#include <vector>

#include "engine/watch/snapshot.h"
#include "quire/engine.h"

namespace quire {

struct SteppedRequest {
  Request request;  // greedy, of one choice
  // Tokens that the first request has when this one is submitted; 0: from the beginning. Fewer than the first one's answer.
  int after = 0;
};

struct SteppedRun {
  struct Step {
    double seconds = 0;
    std::vector<StepPart> parts;  // by sequence
  };
  std::vector<Step> steps;
  double seconds = 0;  // of all steps
  std::vector<TokenIds> answers;
  // StepPart::sequence of each request.
  std::vector<uint64_t> sequences;
};

// requests: by `after`. They are submitted between two steps, so that what each step computes does not depend on how fast this program submits.
// The engine must be idle. They may take at most kMostSteppedSteps steps. Throws Error: a request can never run, or an answer
// ended with an error.
inline constexpr size_t kMostSteppedSteps = EngineSnapshot::kMostSteps - 1;
SteppedRun run_stepped(Engine& engine, const std::vector<SteppedRequest>& requests);

// A prompt of pseudo-random ids: the same for the same seed, and none of the first 32 ids, where special tokens are.
TokenIds random_prompt(const Engine& engine, int tokens, uint64_t seed);
// A greedy request for exactly `answer` tokens.
Request greedy_request(TokenIds prompt, int answer);

// Query-key products that attention computes for rows [first, first + rows) of a causal sequence, in each head and layer: a
// row at position p looks at p + 1 tokens.
constexpr double attention_products(int first, int rows) { return rows * (first + 1.0) + 0.5 * rows * (rows - 1.0); }

}  // namespace quire
