#include "model/packing/matrix_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "quant/gguf_blocks.h"

namespace quire {
namespace {

// The rows of a matrix as coded rows, or rows of bytes: what one panel is made of.
struct Panel {
  std::array<int, kPanel> file_rows;
  size_t count;

  std::span<const int> rows() const { return std::span(file_rows).first(count); }
};
Panel panel_of(const MatrixSource& s, const PackedMatrix& m, int p) {
  Panel panel{{}, static_cast<size_t>(std::min(kPanel, m.rows - p * kPanel))};
  for (size_t n = 0; n < panel.count; ++n) panel.file_rows[n] = s.source.row(p * kPanel + static_cast<int>(n));
  return panel;
}

void pack_coded(const MatrixSource& s, const PackedMatrix& m, int begin, int end, std::byte* data) {
  const PanelRows scratch(m.format, m.cols);
  for (int p = begin; p < end; ++p) {
    const Panel panel = panel_of(s, m, p);
    s.coded->read_rows(panel.rows(), scratch.first(panel.count));
    pack_panel(m, scratch.first(panel.count), data + static_cast<size_t>(p - begin) * m.layout.bytes);
  }
}

// Rows [first, first + count) of a coded matrix as numbers.
std::vector<float> decode_rows(const CodedMatrix& coded, int first, int count, int cols) {
  std::vector<float> values(static_cast<size_t>(count) * static_cast<size_t>(cols));
  const PanelRows scratch(coded.format, cols);
  for (int row = 0; row < count; ++row) {
    const int at = first + row;
    const CodedRow& codes = scratch.first(1)[0];
    coded.read_rows({&at, 1}, {&codes, 1});
    const std::span<float> out =
        std::span(values).subspan(static_cast<size_t>(row) * static_cast<size_t>(cols), static_cast<size_t>(cols));
    if (!has_scales(coded.format)) {
      std::memcpy(out.data(), codes.codes.data(), out.size_bytes());
      continue;
    }
    std::vector<float> ordered(coded.permutation.empty() ? 0 : out.size());
    decode_row(coded.format, coded.factor, codes, ordered.empty() ? out : std::span(ordered));
    for (size_t i = 0; i < ordered.size(); ++i) out[static_cast<size_t>(coded.permutation[i])] = ordered[i];
  }
  return values;
}

// Panels of a matrix whose outputs are the columns of `bytes`, [inputs][file_rows] of a plain type.
void pack_transposed(const MatrixSource& s, const PackedMatrix& m, TensorType type, std::span<const std::byte> bytes,
                     int begin, int end, std::byte* data) {
  const size_t size = info(type).block_bytes, row_bytes = static_cast<size_t>(m.cols) * size,
               file_row = static_cast<size_t>(s.file_rows) * size;
  PanelRows scratch(m.format, 0);
  std::vector<std::byte> gathered(kPanel * row_bytes);
  for (int p = begin; p < end; ++p) {
    const Panel panel = panel_of(s, m, p);
    std::array<const std::byte*, kPanel> rows;
    for (size_t n = 0; n < panel.count; ++n) {
      std::byte* to = gathered.data() + n * row_bytes;
      rows[n] = to;
      const std::byte* from = bytes.data() + static_cast<size_t>(panel.file_rows[n]) * size;
      for (int col = 0; col < m.cols; ++col, to += size, from += file_row) std::memcpy(to, from, size);
    }
    pack_panel(m, type, std::span(rows).first(panel.count), scratch,
               data + static_cast<size_t>(p - begin) * m.layout.bytes);
  }
}

}  // namespace

PackedMatrix MatrixSource::describe(int rows, int cols) const {
  if (!coded) return describe_packed(type, rows, cols);
  if (source.transposed) return describe_packed(TensorType::F32, rows, cols);
  return describe_packed(coded->format, coded->factor, rows, cols);
}

void MatrixSource::pack(const PackedMatrix& m, int begin, int end, std::byte* data) const {
  if (coded && !source.transposed) return pack_coded(*this, m, begin, end, data);
  if (coded) {
    const std::vector<float> values = decode_rows(*coded, source.first_col, m.cols, coded_cols);
    return pack_transposed(*this, m, TensorType::F32, std::as_bytes(std::span(values)), begin, end, data);
  }
  if (source.transposed) {
    const size_t skipped =
        static_cast<size_t>(source.first_col) * static_cast<size_t>(file_rows) * info(type).block_bytes;
    return pack_transposed(*this, m, type, bytes.subspan(skipped), begin, end, data);
  }
  const size_t row_bytes = static_cast<size_t>(m.cols) / info(type).block_elements * info(type).block_bytes;
  PanelRows scratch(m.format, m.cols);
  for (int p = begin; p < end; ++p) {
    const Panel panel = panel_of(*this, m, p);
    std::array<const std::byte*, kPanel> rows;
    for (size_t n = 0; n < panel.count; ++n)
      rows[n] = bytes.data() + static_cast<size_t>(panel.file_rows[n]) * row_bytes;
    pack_panel(m, type, std::span(rows).first(panel.count), scratch,
               data + static_cast<size_t>(p - begin) * m.layout.bytes);
  }
}

std::string MatrixSource::place(int row) const {
  return fmt::format("{} {}{}", source.transposed ? "column" : "row", source.row(row),
                     source.stacked ? fmt::format(" of matrix {}", item) : "");
}

}  // namespace quire
