// What a checkpoint does to the inputs of its linears before they are rounded: fixed with the weights, equal for all rows.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// Blocks of `size` inputs, as row vectors, times H / sqrt(size), where H has entries 1 and -1 and orthogonal rows.
struct Rotation {
  int size = 0;  // 0: none. It divides the inputs
  // H is Sylvester's matrix, whose size is a power of two (QuaRot: arXiv 2404.00456), with its rows multiplied by
  // `signs`, or its columns: the signs multiply the inputs or, if signs_last, the outputs. Empty: all are 1.
  std::vector<float> signs;
  bool signs_last = false;
  std::vector<float> matrix;  // H itself, [size][size], if it is another

  bool operator==(const Rotation&) const = default;
};

// In this order. A rotation and an order do not occur together.
struct InputTransform {
  std::vector<float> factors;  // multiply the inputs (AWQ, SmoothQuant); empty: none
  Rotation rotation;
  // Input i of the matrix is input order[i] of the model: GPTQ's act-order, by which the inputs of a group are
  // neighbours. Empty: the model's.
  std::vector<int32_t> order;

  bool operator==(const InputTransform&) const = default;
  bool empty() const { return factors.empty() && rotation.size == 0 && order.empty(); }
};

// One row of `cols` inputs, from x to `to`. Plain float32: the bits do not depend on the kernel set.
void transform_row(const InputTransform& transform, const float* x, int cols, float* to);

// The rotation that multiplies by H, [size][size] of 1 and -1, or by its transpose: the fast form if H is Sylvester's
// matrix with signs. Does not check that the rows are orthogonal.
Rotation rotation_of(std::vector<float> h, int size, bool transposed);

}  // namespace quire
