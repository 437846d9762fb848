// Speculative sampling by rejection: Leviathan et al., "Fast inference from transformers via speculative decoding"
// (arXiv 2211.17192); Chen et al. (arXiv 2302.01318).
//
// A draft drawn from q is kept with probability min(1, p / q), and else replaced by a draw from (p - q)+, normalized.
// Then the token follows the target's distribution p exactly, whatever q is. The token itself depends on the draft, so
// an answer is not that of the same seed without speculation.
#pragma once

#include <cstdint>

#include "quire/types.h"
#include "sampling/sampler.h"

namespace quire {

// Where a token is drawn: the key of its random numbers, which differ from those of sample().
struct DrawKey {
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint64_t position = 0;  // index of the token, from the beginning of the prompt
};

// Draws a draft from q.
TokenId draw_draft(const TokenWeights& q, DrawKey key);

struct Judged {
  TokenId token;
  bool accepted;  // token is the draft; otherwise it replaces the draft, and later drafts are void
  bool operator==(const Judged&) const = default;
};

// Keeps or replaces one draft. p: of the target (weigh_tokens), with a positive total. q: what the draft was drawn
// from; no weights mean that the drafter is deterministic, so q is 1 for the draft. Reads each weight at most twice and
// allocates nothing.
Judged judge_draft(TokenId draft, const TokenWeights& q, const TokenWeights& p, DrawKey key);

}  // namespace quire
