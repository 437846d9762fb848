#include "sampling/distribution.h"

#include <limits>

#include "sampling/softmax.h"

namespace quire {

Distribution::Distribution(std::span<float> row_logits, float peak, float temperature, SamplerScratch& scratch)
    : logits(row_logits), block_mass(scratch.block_mass) {
  scratch.weights.resize(logits.size());
  weights = scratch.weights;
  compute_weights(logits, peak, temperature, weights);
  add_up();
}

void Distribution::set_temperature(float temperature) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] == 0) logits[i] = -std::numeric_limits<float>::infinity();
  }
  compute_weights(logits, find_peak(logits).logit, temperature, weights);
  add_up();
}

void Distribution::keep(CutLimit limit, std::span<const float> scores, SamplerScratch& scratch) {
  apply_cut(find_cut(scores, weights, limit, scratch), scores, weights);
  add_up();
}

void Distribution::keep_from(float floor, std::span<const float> scores) {
  drop_below(scores, floor, weights);
  add_up();
}

void Distribution::add_up() { total = sum_blocks(weights, block_mass); }

TokenId Distribution::draw(double uniform) const {
  // Below total even after rounding, because uniform is at most 1 - 2^-53.
  double target = uniform * total;
  size_t b = 0;
  for (; block_mass[b] <= target; ++b) target -= block_mass[b];
  size_t i = b * kWeightBlock;
  for (; static_cast<double>(weights[i]) <= target; ++i) target -= static_cast<double>(weights[i]);
  return static_cast<TokenId>(i);
}

}  // namespace quire
