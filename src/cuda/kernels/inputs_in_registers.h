// Rows of inputs that are not transformed, in registers from the only read to the write: a decode step waits for each of these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/prepared_row.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire::cuda {

// As PrepareInputs (kernels/inputs.h) without transforms, for at most 8 kHeld kThreads columns. A block may have fewer threads,
// as many as the row has eights.
template <Activations kForm, int kHeld>
struct PrepareHeldInputs {
  static constexpr const char* kName = "prepare_held_inputs";
  static constexpr int kThreads = 1024;
  static constexpr int kMostCols = 8 * kHeld * kThreads;

  RowsAt<const float> x;
  int32_t cols, x_step, out_step;
  int32_t out_stride;  // bytes
  Global<uint8_t> out;
  Global<const float> weight, bias;    // of the norm, or nullptr
  Global<const int32_t> sources, end;  // as of GatheredRows
  float epsilon;
  float threshold;  // as of PrepareInputs
  int32_t in_place;
  NormKind norm;
  bool aligned;            // rows of x, weight and bias begin at multiples of 16 bytes
  uint8_t unused[2] = {};  // instead of padding: launches are compared byte for byte

  struct Eight {
    float v[8];
  };
  // Zeros beyond the row's end.
  DEVICE Eight load_eight(Global<const float> row, int eight, bool vectors) const {
    Eight to;
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const Four four = load_four(row + (8 * eight + 4 * half), cols - (8 * eight + 4 * half), vectors);
      UNROLL
      for (int k = 0; k < 4; ++k) to.v[4 * half + k] = four.v[k];
    }
    return to;
  }

  DEVICE float sum_squares(const Eight (&values)[kHeld], float mean) const {
    float squares = 0;
    UNROLL
    for (int h = 0; h < kHeld; ++h) {
      UNROLL
      for (int k = 0; k < 8; ++k) {
        const float d = values[h].v[k] - mean;
        if (8 * (thread() + h * threads()) + k < cols) squares = fma_of(d, d, squares);
      }
    }
    return sum_over_block(squares);
  }
  DEVICE float sum_values(const Eight (&values)[kHeld]) const {
    float sum = 0;
    UNROLL
    for (int h = 0; h < kHeld; ++h) {
      UNROLL
      for (int k = 0; k < 8; ++k) sum += values[h].v[k];
    }
    return sum_over_block(sum);
  }

  DEVICE void operator()() const {
    const int row = block_x();
    int source = row;
    if (sources != nullptr) {
      source = row < end[0] ? int(sources[row]) : -1;
      if (source < 0) return;
      if (in_place != 0) source = row;
    }
    const auto from = x.row(source) + static_cast<ptrdiff_t>(block_y()) * x_step;
    const auto to = out + static_cast<ptrdiff_t>(block_y() * out_step + row) * out_stride;
    Eight values[kHeld], weights[kHeld];
    UNROLL
    for (int h = 0; h < kHeld; ++h) {
      values[h] = load_eight(from, thread() + h * threads(), aligned);
      if (weight != nullptr) weights[h] = load_eight(weight, thread() + h * threads(), aligned);
    }
    const auto count = static_cast<float>(cols);
    float mean = 0, factor = 1;
    if (norm == NormKind::kRms) factor = 1.0f / sqrt_of(sum_squares(values, 0) / count + epsilon);
    if (norm == NormKind::kL2) factor = 1.0f / sqrt_of(sum_squares(values, 0) + epsilon);
    if (norm == NormKind::kLayer) {
      mean = sum_values(values) / count;
      factor = 1.0f / sqrt_of(sum_squares(values, mean) / count + epsilon);
    }
    UNROLL
    for (int h = 0; h < kHeld; ++h) {
      const int eight = thread() + h * threads();
      Eight biases{};
      if (bias != nullptr) biases = load_eight(bias, eight, aligned);
      UNROLL
      for (int k = 0; k < 8; ++k) {
        float& value = values[h].v[k];
        value = (value - mean) * factor;
        if (weight != nullptr) value *= weights[h].v[k];
        if (bias != nullptr) value += biases.v[k];
        if (8 * eight + k >= cols) value = 0;
      }
    }
    Int8RowMost most;
    if constexpr (kForm == Activations::kInt8Row) {
      UNROLL
      for (int h = 0; h < kHeld; ++h) {
        UNROLL
        for (int k = 0; k < 8; ++k) most.see(values[h].v[k], threshold);
      }
      most = most_over_block(most);
    }
    UNROLL
    for (int h = 0; h < kHeld; ++h)
      write_inputs<kForm>(values[h].v, thread() + h * threads(), (cols + kBlockInputs - 1) / kBlockInputs, most,
                          threshold, to);
  }
};

}  // namespace quire::cuda
