// From a row of logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "quire/sampling_params.h"
#include "quire/types.h"

namespace quire {

// One row to sample from.
struct SampleRow {
  std::span<float> logits;             // [vocab]; changed: it serves as scratch
  std::span<const TokenId> prompt;     // the history that penalties look at; negative ids (no token) are skipped
  std::span<const TokenId> generated;  // the answer so far
  std::span<const TokenId> banned;     // never chosen: the end tokens while min_tokens is not reached
  uint64_t position = 0;               // absolute index of the token that is sampled, counted from the prompt's first
  uint32_t choice = 0;                 // which of the n answers
  std::span<const TokenIds> banned_runs = {};  // that the answer may not contain; none empty
};

struct Sampled {
  TokenId token = kNoToken;                                  // kNoToken: none may follow
  float logprob = 0.0f;                                      // of the token; 0 unless params.logprobs is set
  std::vector<std::pair<TokenId, float>> top_logprobs = {};  // most probable first; impossible tokens are left out

  bool operator==(const Sampled&) const = default;
};

// Memory that one thread reuses from call to call, so that sampling does not allocate (but for top_logprobs). Holds no
// state: what was sampled with it before changes nothing.
class SamplerScratch {
 public:
  struct Candidate {
    float score;
    TokenId id;
  };
  struct Bucket {
    double mass;
    uint32_t count;
  };

  std::vector<float> raw;             // [vocab] the logits as they came, for logprobs
  std::vector<float> weights;         // [vocab] proportional to the probabilities
  std::vector<float> scores;          // [vocab] typicality; before, the logits of allowed tokens
  std::vector<double> block_mass;     // sums of weights over blocks of the vocabulary
  std::vector<float> block_best;      // best scores in blocks of the vocabulary
  std::vector<float> bars;            // the same, in another order
  std::vector<Bucket> buckets;        // weights by score
  std::vector<Candidate> candidates;  // the tokens about a cut
  std::vector<uint32_t> occurrences;  // [vocab] in the answer; all zero between calls
  std::vector<TokenId> distinct;      // the tokens counted there
  std::vector<uint8_t> seen;          // [vocab] in prompt or answer; all zero between calls
};

// A pure function of params and row: threads, batch and scratch do not matter. In this order, like vLLM:
//   1. logprobs are those of the logits as they came, before everything below
//   2. logit_bias, then repetition_penalty (positive logits are divided, others multiplied), then frequency_penalty and
//      presence_penalty (subtracted)
//   3. tokens outside allowed_token_ids, banned ones and those that would complete a banned run go
//   4. temperature 0: the largest logit, the lowest id on a tie; done
//   5. temperature; then typical_p, top_k, top_p, min_p, each on the renormalised rest of the one before; tokens with
//      equal logits leave highest id first
//   6. one draw, with the random number of (seed, choice, position), over the rest in the order of ids
// Probabilities are multiples of 2^-33 of the best token's, so their sums are exact and need no order; tokens rarer
// than half of that are never drawn. Vocabularies have at most 2^20 tokens. `params` is valid (validate()). Throws
// Error (kInvalid) when a logit is NaN or +infinity, or when all are -infinity; where the request's own
// allowed_token_ids and banned runs leave no token, it says so with kNoToken.
Sampled sample(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

// What `sample` would say of a token that is given: its logprob and the `top` most probable ones. Throws like it.
Sampled describe_token(std::span<const float> logits, TokenId token, int top);

}  // namespace quire
