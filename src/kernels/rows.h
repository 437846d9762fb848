// Contracts of the kernels that work on rows of float32 numbers alone: norms, gates, and what routers need. All may work
// in place: y may be x. Sums are 16 interleaved chains added as a tree (kernels/lanes.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.h"

namespace quire {

// Normalizes each of `groups` runs of `size` consecutive elements of a row, such as the heads of a query:
//
//   value = ((x - mean) * factor) * weight + bias          factor = 1 / sqrt(.), rounded; every operation is rounded
//   y     = value * scale, or fma(value, scale, y_old) if `accumulate`
//
// kRms gives the bits that quantize() normalizes to.
struct NormArgs {
  NormKind kind = NormKind::kRms;
  const float* x;
  size_t x_stride;  // floats from row to row
  float* y;
  size_t y_stride;
  int size;
  int groups = 1;
  const float* weight = nullptr;  // [size]; nullptr: 1
  const float* bias = nullptr;    // [size]; nullptr: 0
  size_t weight_stride = 0;       // floats from a group's weight and bias to the next group's; 0: they share them
  float epsilon = 0;
  float scale = 1;
  bool accumulate = false;
};

// y = f(gate) * y, element by element, for any nonlinearity.
struct GateArgs {
  float* y;
  size_t y_stride;
  const float* gate;
  size_t gate_stride;
  int cols;
  Nonlinearity nonlinearity = Nonlinearity::kNone;
  float alpha = 0, limit = 0;  // only for kClampedSwiglu
};

// y = log(1 + exp(x + bias)) * factor: the step sizes and decays of recurrent layers.
struct SoftplusArgs {
  const float* x;
  size_t x_stride;
  float* y;
  size_t y_stride;
  int cols;
  const float* bias = nullptr;    // [cols]
  const float* factor = nullptr;  // [cols]
};

}  // namespace quire
