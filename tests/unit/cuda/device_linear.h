// Linears by the device's kernels, for tests next to those of the reference (reference_linear.h).
#pragma once

#include <span>
#include <vector>

#include "cuda/linear/inputs.h"
#include "cuda/linear/linear.h"
#include "cuda/stream.h"
#include "unit/cuda/device_memory.h"
#include "unit/cuda/placed.h"
#include "unit/cuda/reference_linear.h"

namespace quire::testing {

// y of the first `rows` rows of x, with inputs of this form.
inline std::vector<float> by_device(cuda::Device& device, cuda::Stream& stream, const LinearCase& c, Activations form,
                                    std::span<const float> x, int rows, cuda::LinearVariant variant = {}) {
  const int cols = c.w->cols;
  const PlacedMatrix w(device, *c.w), up(device, c.up ? *c.up : *c.w);
  cuda::DeviceMemory memory(device);
  Linear linear{.weight = w.matrix, .int8_rows = form == Activations::kInt8Row, .threshold = c.threshold};
  Linear up_linear{.weight = up.matrix, .int8_rows = linear.int8_rows, .threshold = c.threshold};
  if (!c.bias.empty()) linear.bias = Vector(memory, c.bias);
  if (!c.up_bias.empty()) up_linear.bias = Vector(memory, c.up_bias);
  const PlacedRows in(device, rows, cols, x.first(static_cast<size_t>(rows * cols))),
      out(device, rows, c.w->rows, kBefore);
  const cuda::InputBuffers::Need need{rows, cols};
  cuda::InputBuffers inputs(device, {&need, 1}, {.int8_rows = true});
  Projection p = c.projection;
  p.w = &linear, p.y = out.rows(), p.up = c.up ? &up_linear : nullptr;
  const Activations mode = form == Activations::kInt8Row ? Activations::kInt8 : form;
  const Inputs prepared = inputs.prepare(stream, mode, in.rows(), {}, rows, {&linear});
  cuda::project(stream, prepared, {&p, 1}, rows, mode, variant);
  stream.finish();
  return out.values();
}

}  // namespace quire::testing
