// Chooses a token from a row of logits.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "quire/sampling_params.h"
#include "quire/types.h"

namespace quire {

class DryRun;

// A row to sample from.
struct SampleRow {
  std::span<float> logits;                     // [vocab]; overwritten
  std::span<const TokenId> prompt;             // counted by the penalties; negative ids (no token) are skipped
  std::span<const TokenId> generated;          // the answer so far
  std::span<const TokenId> banned;             // never chosen: the end tokens until min_tokens is reached
  uint64_t position = 0;                       // index of the sampled token, from the beginning of the prompt
  uint32_t choice = 0;                         // which of the n answers
  std::span<const TokenIds> banned_runs = {};  // runs that the answer may not contain; none empty
  std::span<const uint32_t> mask = {};  // [ceil(vocab / 32)] bit set: the constraint allows the token; empty: all
  const DryRun* dry_run = nullptr;      // after the answer so far; nullptr: no sequence breakers
  double mirostat_mu = 0;               // after the answer so far; first_mirostat_mu() at its beginning
  // Under a constraint: whether the penalties and DRY act on this row, on which tokens ([ceil(vocab / 32)]; empty: all), and
  // the answer with a negative id for each token that they do not count, none twice (empty: they count all).
  bool penalized = true;
  std::span<const uint32_t> penalized_tokens = {};
  std::span<const TokenId> counted = {};
  // If not empty: logits[i] is that of token ids[i], and other tokens have no chance (candidates.h). Ascending.
  std::span<const TokenId> ids = {};
  TokenId drawn = kNoToken;  // with ids: what the draw gives (step 7), where it has been made elsewhere
  size_t vocab = 0;          // size of the vocabulary; 0: that of logits

  size_t vocab_size() const { return vocab > 0 ? vocab : logits.size(); }
  TokenId token_at(size_t i) const { return ids.empty() ? static_cast<TokenId>(i) : ids[i]; }
  // Of a token that has one.
  float& logit_of(TokenId token) const {
    const size_t at = ids.empty() ? static_cast<size_t>(token)
                                  : static_cast<size_t>(std::ranges::lower_bound(ids, token) - ids.begin());
    assert(at < logits.size() && token_at(at) == token);
    return logits[at];
  }
  std::span<const TokenId> counted_answer() const { return counted.empty() ? generated : counted; }
  bool penalizes(TokenId token) const {
    return penalized_tokens.empty() || has_bit(penalized_tokens, static_cast<size_t>(token));
  }
};

struct Sampled {
  TokenId token = kNoToken;                                  // kNoToken: the request allows none
  float logprob = 0.0f;                                      // 0 unless params.logprobs is set
  std::vector<std::pair<TokenId, float>> top_logprobs = {};  // most probable first; without impossible tokens
  double mirostat_mu = 0;                                    // after the token; 0 without Mirostat

  bool operator==(const Sampled&) const = default;
};

// Memory that a thread reuses, so that sampling does not allocate (except for top_logprobs). It holds no state between
// calls.
class SamplerScratch {
 public:
  static constexpr size_t kBytesPerToken = 40;  // what a thread's vectors grow to, for each token of the vocabulary

  struct Candidate {
    float score;
    TokenId id;
  };
  struct Bucket {
    double mass;
    uint32_t count;
  };

  std::vector<float> raw;             // [vocab] the original logits, for logprobs
  std::vector<float> weights;         // [vocab] proportional to the probabilities
  std::vector<float> scores;          // [vocab] typicality; earlier, the logits of allowed tokens
  std::vector<double> block_mass;     // sum of weights per block of the vocabulary
  std::vector<float> block_best;      // best score per block
  std::vector<float> bars;            // the same, reordered
  std::vector<Bucket> buckets;        // weights by score
  std::vector<Candidate> candidates;  // tokens around a cut
  std::vector<uint32_t> occurrences;  // [vocab] in the answer; lengths of repetitions; zero between calls
  std::vector<TokenId> distinct;      // the tokens with an entry in `seen`
  std::vector<uint8_t> seen;          // [vocab] in prompt or answer; zero between calls
  std::vector<TokenId> recent;        // DRY: the last tokens, backwards
  std::vector<uint32_t> repetitions;  // how far the last tokens repeat at each of them
  std::vector<uint32_t> mask;         // [ceil(vocab / 32)] for the caller: what a constraint allows

  // Makes room for `occurrences`, `distinct` and `seen` of a vocabulary.
  void reserve_counts(size_t vocab);
};

// A pure function of params and row, whatever the thread, batch and scratch. The order is that of vLLM, with
// llama.cpp's samplers in the order of its default chain:
//   1. logprobs are computed from the original logits
//   2. logit_bias; repetition_penalty (positive logits are divided, others multiplied); frequency_penalty and
//      presence_penalty (subtracted); DRY (dry.h); under a constraint, only where it leaves the text free
//   3. tokens outside allowed_token_ids or the mask, banned tokens and tokens that would complete a banned run are
//      removed
//   4. temperature 0: the token with the largest logit, on a tie the lowest id; done
//   5. mirostat: temperature, then a draw by Mirostat (mirostat.h); done
//   6. top_n_sigma; temperature; typical_p, top_k, top_p, min_p, XTC, each on the renormalised result of the previous
//      one; among equal logits the highest id is removed first. With dynatemp_range, the temperature is 1 up to here,
//      and then that of the entropy of the tokens left
//   7. one draw among the remaining tokens in the order of ids
// Draws use the random numbers of (seed, choice, position); whether XTC acts has a number of its own.
// Probabilities are rounded to multiples of 2^-33 of the best token's, so their sums are exact in any order; tokens
// below half of that are never drawn. Vocabularies have at most 2^20 tokens. `params` must be valid (validate()).
// Throws Error (kInvalid) if a logit is NaN or +infinity, or all are -infinity. If allowed_token_ids, the mask and
// banned runs leave no token, the result is kNoToken.
Sampled sample(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

// The probabilities of tokens, times a factor.
struct TokenWeights {
  std::span<const float> weights;  // [vocab]
  double total = 0;                // their sum; positive
};

// What sample() draws from: the weights of all tokens after step 6, or at temperature 0 all weight on the chosen one.
// Overwrites row.logits. The weights lie in the scratch, until it is used again; `total` is 0 where sample() gives
// kNoToken. Throws the same errors. Mirostat has no such weights, because its cut depends on earlier draws:
// uses_mirostat(params) must be false.
TokenWeights weigh_tokens(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

// The logprob of a given token and the `top` most probable tokens, as sample() reports them. Throws the same errors.
Sampled describe_token(std::span<const float> logits, TokenId token, int top);

}  // namespace quire
