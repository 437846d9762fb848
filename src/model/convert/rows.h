// Rows of matrices in files as float32.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "format/tensor_view.h"
#include "model/quantized/coded_matrix.h"
#include "model/tensors.h"

namespace quire {

// One matrix inside a tensor of a file: `item` of `items` (1: the tensor is the matrix), [rows, cols] or, if transposed,
// [cols, rows].
struct FileMatrix {
  const TensorView* view;  // null: of a coded matrix
  int item, items, rows, cols;
  bool transposed;
  std::shared_ptr<const CodedMatrix> coded = nullptr;  // of a quantized Hugging Face checkpoint; not transposed
};
// out: its columns from first_col on, of a coded matrix all. Types that dequantize() can read. Allocates nothing unless
// the matrix is coded. Throws Error if its codes or scales are damaged.
void read_row(const FileMatrix& matrix, int row, int first_col, std::span<float> out);

}  // namespace quire
