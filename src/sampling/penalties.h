// Changes logits according to the request and the tokens so far.
#pragma once

#include <span>

#include "sampling/sampler.h"

namespace quire {

// Whether a penalty or DRY is asked for.
bool has_penalties(const SamplingParams& params);

// Whether the answer so far ends with all of a banned run but its last token.
bool ends_before_last(std::span<const TokenId> generated, std::span<const TokenId> run);

// Applies logit_bias, the three penalties, DRY and all bans, in this order (see sample()). Allocates only for the first
// vocabulary of its size that the scratch sees. Token ids must be below the vocabulary size; negative ones in the
// history are skipped.
void adjust_logits(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch);

}  // namespace quire
