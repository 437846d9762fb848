#include "model/convert/rows.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/packed.h"
#include "quant/blocks.h"

namespace quire {
namespace {

void read_coded_row(const CodedMatrix& coded, int row, std::span<float> out) {
  const PanelRows scratch(coded.format, static_cast<int>(out.size()));
  const CodedRow& codes = scratch.first(1)[0];
  coded.read_rows({&row, 1}, {&codes, 1});
  if (!has_scales(coded.format)) {
    std::memcpy(out.data(), codes.codes.data(), out.size_bytes());
    return;
  }
  if (coded.permutation.empty()) return decode_row(coded.format, coded.factor, codes, out);
  std::vector<float> grouped(out.size());
  decode_row(coded.format, coded.factor, codes, grouped);
  for (size_t i = 0; i < grouped.size(); ++i) out[static_cast<size_t>(coded.permutation[i])] = grouped[i];
}

}  // namespace

void read_row(const FileMatrix& m, int row, int first_col, std::span<float> out) {
  if (m.coded) return read_coded_row(*m.coded, row, out);
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
