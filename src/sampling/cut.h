// Finds where to cut the ranked vocabulary (top_k, top_p, typical_p) without sorting it.
#pragma once

#include <cstddef>
#include <span>

#include "quire/types.h"
#include "sampling/sampler.h"

namespace quire {

// Tokens are ranked by score, higher first; on equal scores, lower id first. Tokens of weight 0 do not count.
// A cut is the last token that stays.
struct Cut {
  float score;
  TokenId id;
  bool operator==(const Cut&) const = default;
};

// Keeps the fewest best-ranked tokens, at least one, that number `count` or weigh `mass`; all tokens if they have
// neither.
struct CutLimit {
  size_t count;
  double mass;
};

// scores, weights: [vocab], at least one weight positive. Weights are those of softmax.h, whose sums are exact. Linear
// time.
Cut find_cut(std::span<const float> scores, std::span<const float> weights, CutLimit limit, SamplerScratch& scratch);

// Sets the weights of all tokens ranked after the cut to 0.
void apply_cut(Cut cut, std::span<const float> scores, std::span<float> weights);

}  // namespace quire
