// Weights in 8-bit floats (Micikevicius et al., arXiv 2209.05433): E4M3 with scales of the tensor, of its outputs, or of
// blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "quantize/solve/float_matrix.h"
#include "quantize/solve/integer_grid.h"

namespace quire {

struct Float8Matrix {
  int rows = 0, cols = 0;
  int row_block = 0, col_block = 0;  // outputs and inputs under a scale
  std::vector<uint8_t> codes;        // [rows, cols]
  std::vector<float> scales;         // [rows / row_block, cols / col_block], rounded up

  int scale_rows() const { return (rows + row_block - 1) / row_block; }
  int scale_cols() const { return (cols + col_block - 1) / col_block; }
  FloatMatrix dequantized() const;
};

// The scale of a block makes its greatest magnitude E4M3's largest number. row_block, col_block: 0: all. weights: finite.
// Throws Error if a scale is too large for its type.
Float8Matrix round_to_float8(const FloatMatrix& weights, int row_block, int col_block, ScaleType type, Team& team);

}  // namespace quire
