// The passes over a whole vocabulary: maximum, log-sum-exp, probabilities. Every result is defined to the bit: fixed
// operations in a fixed order or, where sums are exact, in any.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "quire/types.h"

namespace quire {

// Weights are multiples of this, at most 1. A double holds any sum of 2^20 such weights exactly (33 + 20 = 53 bits).
inline constexpr float kWeightUnit = 0x1p-33f;
inline constexpr size_t kMaxVocab = size_t{1} << 20;

// Sums of weights are kept for blocks of this many tokens: the last draw looks for its block, then for its token.
inline constexpr size_t kSoftmaxBlock = 256;

struct Peak {
  float logit;    // the largest; -infinity when there is nothing else
  TokenId token;  // the first that has it
};
// Throws Error when a logit is NaN or +infinity. At least one logit.
Peak find_peak(std::span<const float> logits);

// log(sum(exp(logits))), peak being the largest and finite.
double log_sum_exp(std::span<const float> logits, float peak);

// weights[i] = exp((logits[i] - peak) / temperature), rounded to kWeightUnit; temperature > 0. The peak's weight is 1.
void compute_weights(std::span<const float> logits, float peak, float temperature, std::span<float> weights);

// weights[i] = 0 where scores[i] < floor; the two may be the same.
void drop_below(std::span<const float> scores, float floor, std::span<float> weights);

// block_mass[b] = the sum of the weights of block b; returns the sum of all. Exact.
double sum_blocks(std::span<const float> weights, std::vector<double>& block_mass);

}  // namespace quire
