#include "model/convert/tensor_writer.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "quant/encode.h"

namespace quire {
namespace {

float changed(float x, Change change) {
  if (change == Change::kPlusOne) return x + 1;
  // By way of double, so that no C library's rounding changes a bit.
  return change == Change::kMinusExp ? -static_cast<float>(std::exp(static_cast<double>(x))) : x;
}

// Whether the tensor is one of a GGUF file, in the type that it has there.
bool is_copy(const PlannedTensor& tensor) {
  if (tensor.parts.size() != 1) return false;
  const PlannedPart& part = tensor.parts.front();
  const TensorView* view = part.from.view;
  return view && view->type == tensor.type && view->name == tensor.name && view->shape == tensor.shape &&
         part.change == Change::kNone && part.head == 0 && !part.from.transposed;
}

}  // namespace

std::span<const std::byte> TensorWriter::fill(const PlannedTensor& tensor, size_t bytes,
                                              std::span<const float> importance) {
  if (is_copy(tensor) && info(tensor.type).block_elements > 1) return tensor.parts.front().from.view->bytes;
  if (is_copy(tensor) && !info(tensor.type).loadable) return tensor.parts.front().from.view->bytes;
  bytes_.assign(bytes, std::byte{0});
  for (const PlannedPart& part : tensor.parts) fill(tensor, part, importance);
  return bytes_;
}

void TensorWriter::fill(const PlannedTensor& tensor, const PlannedPart& part, std::span<const float> importance) {
  struct Failure {
    EncodeResult result = EncodeResult::kDone;
    int row = 0;
    std::optional<Error> error;  // of a damaged matrix
  };
  // Tiles of some 64 KiB: large enough to be worth a thread's while, and many of them even in small tensors.
  const int rows_per_tile = std::max(1, (1 << 14) / std::max(1, part.cols)),
            tiles = (part.rows + rows_per_tile - 1) / rows_per_tile;
  rows_.resize(static_cast<size_t>(team_.size()));
  for (std::vector<float>& row : rows_) row.resize(static_cast<size_t>(part.cols));
  std::vector<Failure> failures(static_cast<size_t>(tiles));
  const TensorTypeInfo& type = info(tensor.type);
  const size_t cols = static_cast<size_t>(part.cols), row_bytes = cols / type.block_elements * type.block_bytes;
  const size_t matrices = importance.empty() ? 1 : importance.size() / cols,
               rows_of_matrix = bytes_.size() / std::max<size_t>(1, row_bytes) / matrices;
  assert(importance.empty() || importance.size() == matrices * cols);
  team_.for_tiles(tiles, [&](int tile, int thread) {
    const std::span<float> row = rows_[static_cast<size_t>(thread)];
    Failure& failure = failures[static_cast<size_t>(tile)];
    const int end = std::min(part.rows, (tile + 1) * rows_per_tile);
    for (int i = tile * rows_per_tile; i < end && failure.result == EncodeResult::kDone && !failure.error; ++i) {
      try {
        read_row(part.from, part.row_from(i), part.rows_from.first_col, row);
      } catch (const Error& error) {
        failure.error = error;
        return;
      }
      for (float& x : row) x = changed(x, part.change);
      const auto to = static_cast<size_t>(part.row_to(i));
      const auto counts = importance.empty() ? importance : importance.subspan(to / rows_of_matrix * cols, cols);
      failure.result = encode_row(tensor.type, row, counts, std::span(bytes_).subspan(to * row_bytes, row_bytes));
      failure.row = part.row_from(i);
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
