#include "quantize/solve/float8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float8.h"
#include "quantize/solve/float_codes.h"

namespace quire {

FloatMatrix Float8Matrix::dequantized() const {
  FloatMatrix all(rows, cols);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const size_t at = static_cast<size_t>(r) * static_cast<size_t>(cols) + static_cast<size_t>(c);
      all.values[at] =
          e4m3_to_f32(codes[at]) * scales[static_cast<size_t>(r / row_block * scale_cols() + c / col_block)];
    }
  }
  return all;
}

Float8Matrix round_to_float8(const FloatMatrix& weights, int row_block, int col_block, ScaleType type, Team& team) {
  Float8Matrix to{.rows = weights.rows,
                  .cols = weights.cols,
                  .row_block = row_block > 0 ? row_block : weights.rows,
                  .col_block = col_block > 0 ? col_block : weights.cols};
  to.codes.resize(weights.values.size());
  to.scales.resize(static_cast<size_t>(to.scale_rows()) * static_cast<size_t>(to.scale_cols()));
  team.for_tiles(to.scale_rows(), [&](int tile, int) {
    const int begin = tile * to.row_block, end = std::min(weights.rows, begin + to.row_block);
    for (int c = 0; c < to.scale_cols(); ++c) {
      const auto first = static_cast<size_t>(c * to.col_block),
                 count = static_cast<size_t>(std::min(to.col_block, weights.cols - c * to.col_block));
      float largest = 0;
      for (int r = begin; r < end; ++r) {
        for (const float w : weights.row(r).subspan(first, count)) largest = std::max(largest, std::fabs(w));
      }
      float scale = rounded_scale(largest / kLargestE4M3Number, type);
      if (scale == 0) scale = largest > 0 ? std::numeric_limits<float>::min() : 1;
      to.scales[static_cast<size_t>(tile * to.scale_cols() + c)] = scale;
      for (int r = begin; r < end; ++r) {
        const std::span<const float> row = weights.row(r).subspan(first, count);
        uint8_t* const codes = to.codes.data() + static_cast<size_t>(r) * static_cast<size_t>(weights.cols) + first;
        for (size_t i = 0; i < count; ++i) codes[i] = e4m3_code(row[i] / scale);
      }
    }
  });
  check_scales(to.scales, type);
  return to;
}

}  // namespace quire
