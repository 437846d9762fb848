// Mirostat (Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", ICLR 2021) and
// its second version: they cut the distribution so that the surprise of drawn tokens, -log2 p, stays near tau.
#pragma once

#include "sampling/distribution.h"
#include "sampling/sampler.h"

namespace quire {

// Greedy sampling needs no state.
inline bool uses_mirostat(const SamplingParams& params) { return params.mirostat != 0 && params.temperature > 0; }

// The most surprise of a token, in bits, at the beginning of an answer. Each draw changes it.
inline double first_mirostat_mu(const SamplingParams& params) { return 2.0 * static_cast<double>(params.mirostat_tau); }

// Draws with `uniform` and adapts mu: by eta times the distance from tau of the drawn token's surprise after the cut.
// Version 2 keeps tokens with a surprise of at most mu; version 1 keeps the k best, k from mu and from the exponent of
// Zipf's law that fits the 100 best tokens. The best token always stays.
TokenId draw_by_mirostat(Distribution& d, const SamplingParams& params, double uniform, double& mu,
                         SamplerScratch& scratch);

}  // namespace quire
