// From hidden states to logits.

#include "model/blocks/blocks.h"

namespace quire {

void output_logits(Operations& ops, const ModelConfig& config, const Inputs& hidden, const Linear& matrix, int rows,
                   float* logits) {
  const Rows to{logits, matrix.weight.rows, static_cast<size_t>(matrix.weight.rows)};
  ops.project(hidden, {.w = &matrix, .y = to, .scale = config.logit_scale}, rows);
  if (config.logit_soft_cap > 0) ops.soft_cap(to, config.logit_soft_cap, rows);
}

}  // namespace quire
