// The tokens that may still be drawn.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sampling/cut.h"
#include "sampling/sampler.h"

namespace quire {

// A removed token has weight 0; at least one weight is positive. The memory is the scratch's and the caller's.
struct Distribution {
  std::span<float> logits;
  std::span<float> weights;         // proportional to the probabilities; those of softmax.h, whose sums are exact
  std::vector<double>& block_mass;  // sums of weights per block
  double total = 0;

  // The softmax of logits / temperature; temperature > 0. `peak` is the largest logit.
  Distribution(std::span<float> row_logits, float peak, float temperature, SamplerScratch& scratch);
  // Again, for the tokens that are left; sets the logits of the others to -infinity.
  void set_temperature(float temperature);

  // Keeps the best tokens by score (cut.h).
  void keep(CutLimit limit, std::span<const float> scores, SamplerScratch& scratch);
  // Keeps tokens that score at least `floor`, which one must do.
  void keep_from(float floor, std::span<const float> scores);
  // After weights were set to 0.
  void add_up();

  // uniform: [0, 1 - 2^-53].
  TokenId draw(double uniform) const;
};

}  // namespace quire
