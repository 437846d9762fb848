// Norms of rows, eight neighbouring numbers at a time: for kernels that prepare inputs of linears. They add squares in one order, whichever
// threads do it: that of a block with a thread for each eight, and with 1,024 threads for up to two each.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"
#include "kernels/types.h"

namespace quire::cuda {

struct Eight {
  float v[8];
};

struct NormedRows {
  RowsAt<const float> x;
  Global<const float> weight, bias;  // of the norm, or nullptr
  int32_t cols;
  float epsilon;
  NormKind norm;
  bool aligned;            // rows of x, weight and bias begin at multiples of 16 bytes
  uint8_t unused[6] = {};  // instead of padding: launches are compared byte for byte

  // Number `eight` of a row, or of the norm's weights; zeros beyond its end.
  DEVICE Eight load(Global<const float> row, int eight) const {
    Eight to;
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const Four four = load_four(row + (8 * eight + 4 * half), cols - (8 * eight + 4 * half), aligned);
      UNROLL
      for (int k = 0; k < 4; ++k) to.v[4 * half + k] = four.v[k];
    }
    return to;
  }
  DEVICE void add_squares(const Eight& values, int eight, float mean, float& squares) const {
    UNROLL
    for (int k = 0; k < 8; ++k) {
      const float d = values.v[k] - mean;
      if (8 * eight + k < cols) squares = fma_of(d, d, squares);
    }
  }
  // What numbers are multiplied by. squares: the sum over the row.
  DEVICE float factor(float squares) const {
    if (norm == NormKind::kL2) return 1.0f / sqrt_of(squares + epsilon);
    return 1.0f / sqrt_of(squares / static_cast<float>(cols) + epsilon);
  }
  // weights: of this eight, if there are any.
  DEVICE void apply(Eight& values, const Eight& weights, int eight, float mean, float factor) const {
    Eight biases{};
    if (bias != nullptr) biases = load(bias, eight);
    UNROLL
    for (int k = 0; k < 8; ++k) {
      float& value = values.v[k];
      value = (value - mean) * factor;
      if (weight != nullptr) value *= weights.v[k];
      if (bias != nullptr) value += biases.v[k];
      if (8 * eight + k >= cols) value = 0;
    }
  }
};

}  // namespace quire::cuda
