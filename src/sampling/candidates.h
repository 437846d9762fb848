// Which logits of a row decide its token, where not all of them do: so that a row need not leave the device that computed it.
#pragma once

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
//
// If candidates.draws, it takes SampleRow::drawn as well: a draw with temperature, top_p and min_p (ops/pick.h), among the best
// tokens if there is a top_k, and otherwise among all, where the best are those that top_p and min_p are likely to leave.
struct Candidates {
  int best = 0;
  std::vector<TokenId> tokens = {};  // ascending
  bool draws = false;
};

// Sets `candidates`, with no more than `most` best tokens; draws: only if may_draw. false: all logits count. They do if
// log-probabilities are wanted, if a step before top_k looks at all tokens, and if top_k does not bound the tokens while logits are
// adjusted, or later steps are others than top_p and min_p. Of the row, the logits do not count; `vocab` must be set.
bool find_candidates(const SamplingParams& params, const SampleRow& row, int most, bool may_draw,
                     SamplerScratch& scratch, Candidates& candidates);

}  // namespace quire
