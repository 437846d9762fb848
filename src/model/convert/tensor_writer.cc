#include "model/convert/tensor_writer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace quire {
namespace {

// Whether the tensor is one of a GGUF file, in the type that it has there.
bool is_copy(const PlannedTensor& tensor) {
  if (tensor.parts.size() != 1) return false;
  const PlannedPart& part = tensor.parts.front();
  const TensorView* view = part.from.view;
  return view && view->type == tensor.type && view->name == tensor.name && view->shape == tensor.shape &&
         part.change == Change::kNone && part.head == 0 && !part.from.transposed;
}

}  // namespace

RowEncoding plain_encoding(TensorType type, std::span<const float> importance) {
  return {[type, importance](size_t matrix, std::span<float> row, std::span<std::byte> out, int) {
    return encode_row(type, row, importance.empty() ? importance : importance.subspan(matrix * row.size(), row.size()),
                      out);
  }};
}

std::span<const std::byte> TensorWriter::fill(const PlannedTensor& tensor, size_t bytes, const RowEncoding& encoding) {
  if (is_copy(tensor) && info(tensor.type).block_elements > 1) return tensor.parts.front().from.view->bytes;
  if (is_copy(tensor) && !info(tensor.type).loadable) return tensor.parts.front().from.view->bytes;
  bytes_.assign(bytes, std::byte{0});
  for (const PlannedPart& part : tensor.parts) fill(tensor, part, encoding);
  return bytes_;
}

void TensorWriter::fill(const PlannedTensor& tensor, const PlannedPart& part, const RowEncoding& encoding) {
  struct Failure {
    EncodeResult result = EncodeResult::kDone;
    int row = 0;
    std::optional<Error> error;  // of a damaged matrix
  };
  // Tiles of some 64 KiB: large enough to be worth a thread's while, and many of them even in small tensors.
  const int rows_per_tile = std::max(encoding.rows_together, (1 << 14) / std::max(1, part.cols)),
            tiles = (part.rows + rows_per_tile - 1) / rows_per_tile;
  const TensorTypeInfo& type = info(tensor.type);
  const size_t cols = static_cast<size_t>(part.cols), row_bytes = cols / type.block_elements * type.block_bytes,
               rows_of_matrix = bytes_.size() / std::max<size_t>(1, row_bytes) / stacked_matrices(tensor);
  rows_.resize(static_cast<size_t>(team_.size()));
  for (Rows& rows : rows_) {
    rows.numbers.resize(static_cast<size_t>(encoding.rows_together) * cols);
    rows.blocks.resize(static_cast<size_t>(encoding.rows_together) * row_bytes);
  }
  std::vector<Failure> failures(static_cast<size_t>(tiles));
  team_.for_tiles(tiles, [&](int tile, int thread) {
    Rows& memory = rows_[static_cast<size_t>(thread)];
    Failure& failure = failures[static_cast<size_t>(tile)];
    const auto matrix_of = [&](int i) { return static_cast<size_t>(part.row_to(i)) / rows_of_matrix; };
    const int end = std::min(part.rows, (tile + 1) * rows_per_tile);
    for (int first = tile * rows_per_tile; first < end && failure.result == EncodeResult::kDone;) {
      int count = 0;
      for (; first + count < end && count < encoding.rows_together; ++count) {
        if (matrix_of(first + count) != matrix_of(first)) break;
        const auto row = std::span(memory.numbers).subspan(static_cast<size_t>(count) * cols, cols);
        try {
          read_row(part.from, part.row_from(first + count), part.rows_from.first_col, row);
        } catch (const Error& error) {
          failure.error = error;
          return;
        }
        for (float& x : row) x = changed(x, part.change);
        if (std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) continue;
        failure = {EncodeResult::kNotFinite, part.row_from(first + count), {}};
        return;
      }
      const auto blocks = std::span(memory.blocks).first(static_cast<size_t>(count) * row_bytes);
      failure.row = part.row_from(first);
      failure.result = encoding.encode(
          matrix_of(first), std::span(memory.numbers).first(static_cast<size_t>(count) * cols), blocks, thread);
      for (int i = 0; i < count; ++i)
        std::ranges::copy(
            blocks.subspan(static_cast<size_t>(i) * row_bytes, row_bytes),
            bytes_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(part.row_to(first + i)) * row_bytes));
      first += count;
    }
  });
  for (const Failure& failure : failures) {
    if (failure.error) throw Error(*failure.error);
    if (failure.result == EncodeResult::kDone) continue;
    const std::string where =
        fmt::format("{}: tensor {}, row {}", file_, part.from.view ? part.from.view->name : tensor.name, failure.row);
    if (failure.result == EncodeResult::kNotFinite)
      throw invalid("{} has a value that is not finite; the file is damaged", where);
    throw invalid("{} has a value that is too large for {}; use bf16", where, quire::name(tensor.type));
  }
}

}  // namespace quire
