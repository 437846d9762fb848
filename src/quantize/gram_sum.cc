#include "quantize/gram_sum.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"
#include "ops/cpu/linear.h"

namespace quire {
namespace {

constexpr int kBand = 256;  // rows of the matrix that are summed from the diagonal on

LargeBuffer& at_least(LargeBuffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer = LargeBuffer(bytes);
  return buffer;
}

}  // namespace

// x^T x is a linear with the weights x^T: its inputs are the columns of x, a "row" for each, and its outputs too.
void GramSum::add(const Compute& compute, const Rows& x, int rows, std::span<float> gram) {
  const int cols = x.cols;
  const auto size = static_cast<size_t>(cols);
  assert(gram.size() == size * size);
  factors_.resize(static_cast<size_t>(rows));
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (const float number : std::span(x.row(row), size)) squares += static_cast<double>(number) * number;
    factors_[static_cast<size_t>(row)] = squares > 0 ? static_cast<float>(std::sqrt(cols / squares)) : 0;
  }
  PackedMatrix weights = describe_packed(TensorType::F32, cols, rows);
  at_least(packed_, weights.bytes());
  const auto depth = static_cast<size_t>(weights.blocks()) * kBlockInputs;
  float* const transposed = at_least(transposed_, size * depth * sizeof(float)).as<float>();
  compute.team.for_tiles(weights.panels(), [&](int panel, int) {
    // A panel of float32 has a line of kPanel outputs for each input.
    float* const lines = packed_.as<float>(static_cast<size_t>(panel) * weights.layout.bytes);
    for (size_t row = 0; row < depth; ++row) {
      for (int i = 0; i < kPanel; ++i) {
        const int col = panel * kPanel + i;
        const bool is_inside = col < cols && row < static_cast<size_t>(rows);
        const float number = is_inside ? factors_[row] * x.row(static_cast<int>(row))[col] : 0;
        lines[row * kPanel + static_cast<size_t>(i)] = number;
        if (col < cols) transposed[static_cast<size_t>(col) * depth + row] = number;
      }
    }
  });
  const size_t stride = static_cast<size_t>(weights.blocks()) * activation_block_bytes(Activations::kF32);
  std::byte* const inputs = at_least(inputs_, padded_rows(cols) * stride).data();
  quantize_rows(
      compute,
      {.x = transposed, .x_stride = depth, .cols = rows, .to = Activations::kF32, .out = inputs, .out_stride = stride},
      cols);
  weights.data = packed_.data();
  for (int begin = 0; begin < cols; begin += kBand) {
    PackedMatrix outputs = weights;  // those from the band's first on
    outputs.rows = cols - begin;
    outputs.data = weights.panel(begin / kPanel);
    const LinearArgs args{.weights = &outputs,
                          .activations = Activations::kF32,
                          .x = inputs + static_cast<size_t>(begin) * stride,
                          .x_stride = stride,
                          .y = &gram[static_cast<size_t>(begin) * size + static_cast<size_t>(begin)],
                          .y_stride = size,
                          .accumulate = true};
    linears(compute, {&args, 1}, std::min(kBand, cols - begin));
  }
}

void GramSum::mirror(std::span<float> gram, int cols) {
  const auto size = static_cast<size_t>(cols);
  for (size_t row = 0; !gram.empty() && row < size; ++row) {
    for (size_t col = 0; col < row; ++col) gram[row * size + col] = gram[col * size + row];
  }
}

}  // namespace quire
