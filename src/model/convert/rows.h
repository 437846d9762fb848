// Rows of matrices on their way from one file to another: float32 in between.
#pragma once

#include <cstddef>
#include <span>

#include "format/tensor_view.h"
#include "model/tensors.h"

namespace quire {

// One matrix inside a tensor of a file: `item` of `items` (1: the tensor is the matrix), [rows, cols] or, if transposed,
// [cols, rows].
struct FileMatrix {
  const TensorView* view;
  int item, items, rows, cols;
  bool transposed;
};
// out: its columns from first_col on. Types that dequantize() can read. Allocates nothing unless the type is quantized.
void read_row(const FileMatrix& matrix, int row, int first_col, std::span<float> out);

}  // namespace quire
