// Low-rank changes of linears, for some of the rows (LoRA: arXiv 2106.09685).
#pragma once

#include "ops/linear.h"
#include "ops/rows.h"

namespace quire {

// y += scale * B (A x).
struct LowRank {
  Linear down, up;  // A [rank, inputs] and B [outputs, rank], in float types: no bias, no transform
  float scale = 1;
};

// Rows [row, row + rows) of a step: their inputs go through `change`, and `scale` times the result is added to these rows of y.
struct LowRankProduct {
  const LowRank* change;
  int row, rows;
  Rows y;
  float scale = 1;
};

// Linears of the same inputs that one call changes: those of queries, keys, values and a gate.
inline constexpr int kMostChanged = 4;

}  // namespace quire
