// From hidden states to logits.

#include "model/blocks/blocks.h"

namespace quire {

std::span<float> output_logits(const Compute& compute, const ModelConfig& config, const Inputs& hidden,
                               const Linear& matrix, int rows, float* memory) {
  const auto cols = static_cast<size_t>(matrix.weight.rows);
  const Rows logits{memory, matrix.weight.rows, cols};
  project(compute, hidden, {.w = &matrix, .y = logits, .scale = config.logit_scale}, rows);
  if (config.logit_soft_cap > 0) soft_cap(compute, logits, config.logit_soft_cap, rows);
  return {memory, static_cast<size_t>(rows) * cols};
}

}  // namespace quire
