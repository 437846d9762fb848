#include "model/adapter/up_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "base/text/quote.h"

namespace quire {
namespace {

size_t number_bytes(TensorType type) { return type == TensorType::F32 ? sizeof(float) : sizeof(uint16_t); }

float number_at(const TensorView& tensor, size_t i) {
  const std::byte* const at = tensor.bytes.data() + i * number_bytes(tensor.type);
  if (tensor.type == TensorType::F32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return tensor.type == TensorType::F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

}  // namespace

UpMatrix fold_up(const AdapterPair& pair, const Source& source, int outputs, int folds, std::span<const float> factors,
                 const std::string& file) {
  const int rank = pair.rank(), rows = outputs / folds, fold_columns = folds > 1 ? kBlockInputs / folds : rank;
  UpMatrix up{factors.empty() ? pair.up->type : TensorType::F32, {}};
  const size_t size = number_bytes(up.type), row_bytes = static_cast<size_t>(folds * fold_columns) * size;
  up.bytes.resize(static_cast<size_t>(rows) * row_bytes);
  for (int output = 0; output < outputs; ++output) {
    std::byte* to = up.bytes.data() + static_cast<size_t>(output % rows) * row_bytes +
                    static_cast<size_t>(output / rows * fold_columns) * size;
    const auto from = static_cast<size_t>(source.row(output)) * static_cast<size_t>(rank);
    for (int r = 0; r < rank; ++r, to += size) {
      const size_t at = from + static_cast<size_t>(r);
      const float value = number_at(*pair.up, at);
      if (!std::isfinite(value))
        throw invalid("{}: row {} of {} has the number {}; the file is damaged", file, source.row(output),
                      quote(pair.up->name), value);
      if (factors.empty()) {
        std::memcpy(to, pair.up->bytes.data() + at * size, size);
      } else {
        const float scaled = value * factors[static_cast<size_t>(output)];
        std::memcpy(to, &scaled, size);
      }
    }
  }
  return up;
}

std::vector<float> decomposed_factors(const AdapterPair& pair, const Source& source, const Linear& linear,
                                      Backend& backend, Team& team, const std::string& file) {
  if (linear.transform)
    throw unsupported(
        "{}: {} has DoRA, which needs the model's weights, but this model has weights for inputs that are "
        "rotated or scaled; merge the adapter into the model before it is quantized",
        file, quote(pair.module));
  const PackedMatrix& w = linear.weight;
  const auto rank = static_cast<size_t>(pair.rank()), cols = static_cast<size_t>(w.cols);
  std::vector<float> down(rank * cols);
  for (size_t i = 0; i < down.size(); ++i) down[i] = number_at(*pair.down, i);
  std::vector<float> factors(static_cast<size_t>(w.rows));
  team.for_tiles(w.panels(), [&](int panel, int) {
    HostCopy copy;
    std::vector<float> row(cols);
    PackedMatrix one = w;  // a panel of it
    one.rows = std::min(kPanel, w.rows - panel * kPanel);
    one.data = backend.view(const_cast<std::byte*>(w.panel(panel)), w.layout.bytes, copy).data();
    for (int i = 0; i < one.rows; ++i) {
      const int output = panel * kPanel + i;
      const auto from = static_cast<size_t>(source.row(output));
      unpack_row(one, i, row.data());
      for (size_t r = 0; r < rank; ++r) {
        const float by = pair.scale * number_at(*pair.up, from * rank + r);
        for (size_t c = 0; c < cols; ++c) row[c] += by * down[r * cols + c];
      }
      double squares = 0;
      for (const float x : row) squares += double{x} * double{x};
      factors[static_cast<size_t>(output)] =
          static_cast<float>(double{number_at(*pair.magnitude, from)} / std::sqrt(squares));
    }
  });
  for (size_t output = 0; output < factors.size(); ++output) {
    if (!std::isfinite(factors[output]))
      throw invalid("{}: output {} of {} cannot be scaled to its magnitude: its factor would be {}", file,
                    source.row(static_cast<int>(output)), quote(pair.module), factors[output]);
  }
  return factors;
}

}  // namespace quire
