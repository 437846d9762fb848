// AWQ (Lin et al., arXiv 2306.00978): scales up the inputs' weights that matter, and scales the inputs down instead, before
// rounding to nearest; then clips each group of weights where the outputs gain.
#pragma once

#include <span>
#include <vector>

#include "base/team.h"
#include "quantize/input_statistics.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

// Factors of a linear's inputs: weights are multiplied by them, and what computes the inputs divides by them.
struct InputScales {
  std::vector<float> scales;          // [cols], positive
  double error = 0, plain_error = 0;  // squared, of the outputs: with the scales, and with all of them 1
};

// Searches m^r and m^r / w^(1-r), for the mean magnitudes m of the inputs and w of their weights, over 20 exponents r. The
// error is exact for the Gram matrix, tr(D G D^T), not that of some rows.
//
// weights: rows of all matrices that read these inputs, or a fair sample of them. tied: [cols], inputs of one number share
// a factor, because one output computes them; empty: none do. inputs: with a Gram matrix of at least one row.
InputScales search_awq_scales(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid,
                              std::span<const int> tied, Team& team);

// Rounds to nearest, with the range of each group shrunk to the part that loses least of the outputs: one round of
// coordinate descent over the groups of a row, under the whole Gram matrix. So no row loses more than without. inputs: with
// a Gram matrix. Throws Error if a scale is too large for its type.
IntegerMatrix round_with_clipping(const FloatMatrix& weights, const InputStatistics& inputs, const IntegerGrid& grid,
                                  Team& team);

}  // namespace quire
