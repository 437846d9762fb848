// Rows of inputs that are not transformed, in registers from the only read to the write: a decode step waits for each of these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/normed_eights.h"
#include "cuda/kernels/prepared_row.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/write_inputs.h"
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

  NormedRows rows;
  int32_t x_step, out_step;
  int32_t out_stride;  // bytes
  float threshold;     // as of PrepareInputs
  Global<uint8_t> out;
  Global<const int32_t> sources, end;  // as of GatheredRows
  int32_t in_place;
  int32_t unused = 0;

  DEVICE float sum_squares(const Eight (&values)[kHeld], float mean) const {
    float squares = 0;
    UNROLL
    for (int h = 0; h < kHeld; ++h) rows.add_squares(values[h], thread() + h * threads(), mean, squares);
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
    const auto from = rows.x.row(source) + static_cast<ptrdiff_t>(block_y()) * x_step;
    const auto to = out + static_cast<ptrdiff_t>(block_y() * out_step + row) * out_stride;
    Eight values[kHeld], weights[kHeld];
    UNROLL
    for (int h = 0; h < kHeld; ++h) {
      values[h] = rows.load(from, thread() + h * threads());
      if (rows.weight != nullptr) weights[h] = rows.load(rows.weight, thread() + h * threads());
    }
    float mean = 0, factor = 1;
    if (rows.norm == NormKind::kLayer) mean = sum_values(values) / static_cast<float>(rows.cols);
    if (rows.norm != NormKind::kNone) factor = rows.factor(sum_squares(values, mean));
    UNROLL
    for (int h = 0; h < kHeld; ++h) rows.apply(values[h], weights[h], thread() + h * threads(), mean, factor);
    RowMost most;
    if constexpr (kNeedsWholeRow<kForm>) {
      UNROLL
      for (int h = 0; h < kHeld; ++h) {
        UNROLL
        for (int k = 0; k < 8; ++k) see_input<kForm>(most, values[h].v[k], threshold);
      }
      most = most_over_block(most);
    }
    UNROLL
    for (int h = 0; h < kHeld; ++h)
      write_inputs<kForm>(values[h].v, thread() + h * threads(), (rows.cols + kBlockInputs - 1) / kBlockInputs, most,
                          threshold, to);
  }
};

}  // namespace quire::cuda
