// Keeps the best-ranked tokens without sorting the vocabulary.
#pragma once

#include <cstddef>
#include <span>

#include "quire/types.h"
#include "sampling/sampler.h"

namespace quire {

// Tokens are ranked by score, higher first, on equal scores the lower id first; those of weight 0 do not take part.
// A cut is the last token that stays.
struct Cut {
  float score;
  TokenId id;
  bool operator==(const Cut&) const = default;
};

// The shortest run of best-ranked tokens, never empty, that has `count` tokens or weighs `mass`; all of them if none
// has.
struct CutLimit {
  size_t count;
  double mass;
};

// scores, weights: [vocab]; some weight is positive; weights are those of softmax.h, whose sums are exact. Linear time.
Cut find_cut(std::span<const float> scores, std::span<const float> weights, CutLimit limit, SamplerScratch& scratch);

// The weights of all tokens behind the cut become 0.
void apply_cut(Cut cut, std::span<const float> scores, std::span<float> weights);

}  // namespace quire
