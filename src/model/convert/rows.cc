#include "model/convert/rows.h"

#include <cassert>

#include "quant/blocks.h"

namespace quire {

void read_row(const FileMatrix& m, int row, int first_col, std::span<float> out) {
  const TensorTypeInfo& type = info(m.view->type);
  const size_t rows = static_cast<size_t>(m.rows), cols = static_cast<size_t>(m.cols),
               first = static_cast<size_t>(first_col), at = static_cast<size_t>(row);
  const auto matrix =
      m.view->bytes.subspan(m.view->bytes.size() / static_cast<size_t>(m.items) * static_cast<size_t>(m.item));
  if (!m.transposed) {
    assert(first % type.block_elements == 0 && out.size() % type.block_elements == 0);
    const size_t begin = (at * cols + first) / type.block_elements * type.block_bytes;
    return dequantize(m.view->type, matrix.subspan(begin, out.size() / type.block_elements * type.block_bytes), out);
  }
  for (size_t i = 0; i < out.size(); ++i)
    dequantize(m.view->type, matrix.subspan(((first + i) * rows + at) * type.block_bytes, type.block_bytes),
               out.subspan(i, 1));
}

}  // namespace quire
