// Linears by the reference kernels, for tests of the device's.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "base/memory.h"
#include "kernels/kernels.h"
#include "ops/linear.h"

namespace quire::testing {

// A linear, with what Projection adds to it.
struct LinearCase {
  const PackedMatrix* w;
  const PackedMatrix* up = nullptr;
  std::vector<float> bias{}, up_bias{};
  Projection projection{};                                   // f, alpha, limit, scale, accumulate
  float threshold = std::numeric_limits<float>::infinity();  // Linear::threshold
};

inline constexpr float kBefore = 0.25f;  // what a target holds

struct RoundedRows {
  LargeBuffer data;
  size_t stride;
};
inline RoundedRows rounded_rows(Activations form, float threshold, const std::vector<float>& x, int rows, int cols) {
  const size_t stride = static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(form);
  RoundedRows to{LargeBuffer(stride * padded_rows(rows)), stride};
  reference_kernels().quantize({.x = x.data(),
                                .x_stride = static_cast<size_t>(cols),
                                .cols = cols,
                                .to = kernel_form(form),
                                .threshold = threshold,
                                .to_e4m3 = form == Activations::kFp8,
                                .out = to.data.data(),
                                .out_stride = stride},
                               0, rows);
  return to;
}

inline std::vector<float> reference(const LinearCase& c, Activations form, const std::vector<float>& x, int rows) {
  const RoundedRows in = rounded_rows(form, c.threshold, x, rows, c.w->cols);
  const auto outputs = static_cast<size_t>(c.w->rows);
  std::vector<float> y(static_cast<size_t>(rows) * outputs, kBefore);
  reference_kernels().linear({.weights = c.w,
                              .up = c.up,
                              .activations = kernel_form(form),
                              .x = in.data.data(),
                              .x_stride = in.stride,
                              .y = y.data(),
                              .y_stride = outputs,
                              .bias = c.bias.empty() ? nullptr : c.bias.data(),
                              .up_bias = c.up_bias.empty() ? nullptr : c.up_bias.data(),
                              .nonlinearity = c.projection.f,
                              .alpha = c.projection.alpha,
                              .limit = c.projection.limit,
                              .scale = c.projection.scale,
                              .accumulate = c.projection.accumulate},
                             0, c.w->panels(), 0, rows);
  return y;
}

}  // namespace quire::testing
