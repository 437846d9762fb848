// GPTQ (Frantar et al., arXiv 2210.17323): quantizes input by input, and after each one moves the weights that are left so
// that they make up for its error.
#pragma once

#include "base/team.h"
#include "quantize/solve/input_algebra.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

// factor: of the inputs (factor_inverse()), in the order in which they are quantized. With groups of that order ("act-order"
// if it is by size), IntegerMatrix::group_of says which group an input is in. static_groups: groups are neighbours in the
// model's order, and their scales are those of the weights before any moved. Weights of dead inputs become 0.
//
// Least-squares grids weigh the errors of an input by 1 / U_ii^2: what the method itself says that they cost.
//
// weights: finite. Throws Error if a scale is too large for its type. The result does not depend on the team.
IntegerMatrix solve_gptq(const FloatMatrix& weights, const InverseFactor& factor, const IntegerGrid& grid,
                         bool static_groups, Team& team);

}  // namespace quire
