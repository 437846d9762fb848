// Which logits of a row decide its token, where not all of them do: so that a row need not leave the device that computed it.
#pragma once

#include <optional>
#include <vector>

#include "sampling/sampler.h"

namespace quire {

// sample() gives the token that it gives for all of the row if SampleRow::ids are
//   - the tokens of candidates.tokens, and
//   - of the other ones that the mask allows, the candidates.best with the largest logits, on a tie those with lower ids,
// unless one of these logits is NaN or +infinity, or the best one is -infinity.
//
// The reason: adjust_logits() changes no logits but those of candidates.tokens, so among the others the order stays. With
// temperature 0 only the best token matters. With top_k, the later steps see only the k best tokens: temperature, the step before
// it, needs no other tokens than each one and the best. Sums of the later steps are exact (sampler.h), or go through the tokens
// that are left in the order of ids.
struct Candidates {
  int best = 0;
  std::vector<TokenId> tokens;  // ascending
};

// How many best tokens suffice if no logit is adjusted; nullopt: all logits count. They do if log-probabilities are wanted, and
// if a step before top_k looks at all tokens.
std::optional<int> best_candidates(const SamplingParams& params);

// Sets candidates.tokens, and candidates.best to `best` or, if other tokens cannot be chosen, to 0. Of the row, the logits do not
// count; `vocab` must be set.
void find_candidates(const SamplingParams& params, const SampleRow& row, int best, SamplerScratch& scratch,
                     Candidates& candidates);

}  // namespace quire
