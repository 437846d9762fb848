// Low-rank changes of linears, for some of the rows (LoRA: arXiv 2106.09685).
#pragma once

#include "ops/linear.h"
#include "ops/rows.h"

namespace quire {

// y += scale * B (A x), or with weight decomposition (DoRA: arXiv 2402.09353), where y is W x + bias,
//
//   y += gain * y + offset + scale * B (A x)         gain = g - 1, offset = -(g - 1) * bias; B has the factor g
//
// for the g of each output: its magnitude divided by the length of its row of W + scale * B A.
//
// Packed columns are padded to blocks of 32. So that B of a small rank is not mostly padding, it may be folded: `up` is
// [outputs / folds, 32], and columns 32 / folds * i .. of it are the part of B with outputs up.weight.rows * i ..
struct LowRank {
  Linear down, up;  // A [rank, inputs] and B [outputs, rank], in float types: no bias, no transform
  float scale = 1;
  int folds = 1;        // 1, 2 or 4
  Vector gain, offset;  // [outputs]; empty: no weight decomposition; offset empty: no bias

  int rank() const { return down.weight.rows; }
  int outputs() const { return up.weight.rows * folds; }
};
// The most folds that outputs and rank allow.
int low_rank_folds(int outputs, int rank);

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
