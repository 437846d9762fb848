// Passes over a whole vocabulary: maximum, log-sum-exp, probabilities. Results are defined to the bit: operations have
// a fixed order unless sums are exact.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/softmax_weight.h"
#include "quire/types.h"

namespace quire {

inline constexpr size_t kMaxVocab = size_t{1} << 20;

// Weights are summed per block of this many tokens; a draw finds its block first, then its token.
inline constexpr size_t kWeightBlock = 256;

struct Peak {
  float logit;    // the largest; -infinity if all are
  TokenId token;  // the first with that logit
};
// Throws Error if a logit is NaN or +infinity. `logits` is not empty.
Peak find_peak(std::span<const float> logits);

// log(sum(exp(logits))). `peak` is the largest logit, and finite.
double log_sum_exp(std::span<const float> logits, float peak);

// Of the logits above -infinity. `peak` is the largest, and finite.
double standard_deviation(std::span<const float> logits, float peak);

// weights[i] = softmax_weight(logits[i], peak, temperature).
void compute_weights(std::span<const float> logits, float peak, float temperature, std::span<float> weights);

// weights[i] = 0 where scores[i] < floor; the two may be the same memory.
void drop_below(std::span<const float> scores, float floor, std::span<float> weights);

// block_mass[b] = sum of the weights of block b. Returns the total. Both are exact.
double sum_blocks(std::span<const float> weights, std::vector<double>& block_mass);

}  // namespace quire
