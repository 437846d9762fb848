// The definition of linears in plain scalar code: obvious, slow, and the oracle for all other kernels.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/half.h"
#include "kernels/denormals.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "kernels/reference.h"
#define QUIRE_ISA reference
#include "kernels/rotate_store.inc.h"

namespace quire {
namespace reference {
namespace {

// One output's weights, taken apart once for all rows. Padded to whole blocks.
struct Output {
  const PackedMatrix& matrix;
  int output;
  std::vector<WeightParts> parts;  // filled for matrices with scales
  std::vector<float> weights;

  Output(const PackedMatrix& m, int n) : matrix(m), output(n), weights(static_cast<size_t>(m.blocks()) * kBlockInputs) {
    for (int k = 0; k < m.cols; ++k) weights[static_cast<size_t>(k)] = packed_weight(m, n, k);
    if (!has_scales(m.format)) return;
    for (int k = 0; std::cmp_less(k, weights.size()); ++k) parts.push_back(packed_parts(m, n, k));
  }
  const WeightParts& part(int b, int i) const { return parts[static_cast<size_t>(b * kBlockInputs + i)]; }
  float weight(int b, int i) const { return weights[static_cast<size_t>(b * kBlockInputs + i)]; }
  TwoLevels two_levels(int b, int i) const { return packed_two_levels(matrix, output, b * kBlockInputs + i); }
  // Inputs of a block that share a scale. Larger groups count in each of their blocks.
  int length() const { return std::min(matrix.format.group, kBlockInputs); }
};

// Of codes with inputs [begin, end) of a block.
float integer_dot(const Output& w, const Int8Block* x, int b, int begin, int end) {
  int32_t dot = 0;
  for (int i = 0; i < kBlockInputs; ++i) {
    const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
    if (k >= begin && k < end) dot += static_cast<int>(w.part(b, k).code) * x[b].q[i];
  }
  return static_cast<float>(dot);
}

float dot_two_levels(const Output& w, const Int8Block* x) {
  float acc = 0, low = 0, part = 0, low_part = 0;
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    const TwoLevels first = w.two_levels(b, 0), second = w.two_levels(b, 16);
    const float sum = std::fma(integer_dot(w, x, b, 16, 32), second.part, integer_dot(w, x, b, 0, 16) * first.part);
    part = std::fma(sum, x[b].scale, part);
    const auto half_sum = [&](int g) { return static_cast<float>(x[b].half_sums[g]); };
    const float minimum = std::fma(half_sum(1), second.minimum_part, half_sum(0) * first.minimum_part);
    low_part = std::fma(minimum, x[b].scale, low_part);
    if ((b + 1) * kBlockInputs % kSuperInputs != 0 && b + 1 < w.matrix.blocks()) continue;
    acc = std::fma(std::exchange(part, 0.0f), first.super, acc);
    low = std::fma(std::exchange(low_part, 0.0f), first.super_minimum, low);
  }
  return has_minima(w.matrix.format) ? acc + low : acc;
}

float dot_int8(const Output& w, const Int8Block* x) {
  if (has_two_levels(w.matrix.format)) return dot_two_levels(w, x);
  const bool minima = has_minima(w.matrix.format);
  float acc = 0, low = 0;
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    const WeightParts &first = w.part(b, 0), &second = w.part(b, 16);
    if (w.length() == kBlockInputs) {
      acc = std::fma(integer_dot(w, x, b, 0, 32), first.scale * x[b].scale, acc);
      if (minima) low = std::fma(first.minimum, x[b].sum, low);
      continue;
    }
    const float sum = std::fma(integer_dot(w, x, b, 16, 32), second.scale, integer_dot(w, x, b, 0, 16) * first.scale);
    acc = std::fma(sum, x[b].scale, acc);
    if (minima) {
      low = std::fma(first.minimum, x[b].scale * static_cast<float>(x[b].half_sums[0]), low);
      low = std::fma(second.minimum, x[b].scale * static_cast<float>(x[b].half_sums[1]), low);
    }
  }
  return minima ? acc + low : acc;
}

float dot_int8x2(const Output& w, const Int8Block* x) {
  const auto* outliers = reinterpret_cast<const Outlier*>(x + w.matrix.blocks());
  float value = dot_int8(w, x);
  for (uint32_t i = 0; i < x->outliers; ++i)
    value = std::fma(outliers[i].x, w.weights[static_cast<size_t>(outliers[i].input)], value);
  return value;
}

float dot_bf16(const Output& w, const FloatBlock* x) {
  const int length = w.length();
  float acc = 0, low = 0;
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    for (int begin = 0; begin < kBlockInputs; begin += length) {
      float even = 0, odd = 0;
      const auto code = [&](int k) {
        const float value = w.part(b, k).code;
        return w.matrix.format.codes == Codes::kFloat4 ? bf16_to_f32(f32_to_bf16(value)) : value;
      };
      for (int k = begin; k < begin + length; k += 2) {
        even = std::fma(x[b].x[k], code(k), even);
        odd = std::fma(x[b].x[k + 1], code(k + 1), odd);
      }
      const WeightParts& group = w.part(b, begin);
      const float sum = length == 16 ? x[b].half_sums[begin / 16] : x[b].sum;
      acc = std::fma(even + odd, group.scale, acc);
      if (has_minima(w.matrix.format)) low = std::fma(group.minimum, sum, low);
    }
  }
  return has_minima(w.matrix.format) ? acc + low : acc;
}

float dot_int8_row(const Output& w, const Int8RowBlock* x) {
  int32_t dot = 0;
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    for (int i = 0; i < kBlockInputs; ++i) {
      const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
      dot += static_cast<int>(w.part(b, k).code) * x[b].q[i];
    }
  }
  float value = static_cast<float>(dot) * (w.part(0, 0).scale * x[0].scale);
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    for (int i = 0; i < kBlockInputs; ++i)
      if (x[b].outliers >> i & 1) value = std::fma(f16_to_f32(x[b].x[i]), w.weight(b, i), value);
  }
  return value;
}

// Whole weights: kF32, and kBf16 for weights that have no scale.
float dot_float(const Output& w, const FloatBlock* x) {
  float acc = 0;
  for (int b = 0; b < w.matrix.blocks(); ++b) {
    float even = 0, odd = 0;
    for (int k = 0; k < kBlockInputs; k += 2) {
      even = std::fma(x[b].x[k], w.weight(b, k), even);
      odd = std::fma(x[b].x[k + 1], w.weight(b, k + 1), odd);
    }
    acc += even + odd;
  }
  return acc;
}

float dot(const LinearArgs& a, const Output& w, int row) {
  const std::byte* x = a.x + static_cast<size_t>(row) * a.x_stride;
  if (a.activations == Activations::kInt8) return dot_int8(w, reinterpret_cast<const Int8Block*>(x));
  if (a.activations == Activations::kInt8x2) return dot_int8x2(w, reinterpret_cast<const Int8Block*>(x));
  if (a.activations == Activations::kInt8Row) return dot_int8_row(w, reinterpret_cast<const Int8RowBlock*>(x));
  const auto* floats = reinterpret_cast<const FloatBlock*>(x);
  return a.activations == Activations::kBf16 && has_scales(w.matrix.format) ? dot_bf16(w, floats)
                                                                            : dot_float(w, floats);
}

void linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const FlushDenormals flush(a.activations == Activations::kBf16);
  for (int n = panel_begin * kPanel; n < std::min(panel_end * kPanel, a.weights->rows); ++n) {
    const Output output(*a.weights, n);
    const std::optional<Output> up_output = a.up ? std::optional<Output>(std::in_place, *a.up, n) : std::nullopt;
    for (int row = row_begin; row < row_end; ++row) {
      float value = dot(a, output, row);
      if (a.bias) value += a.bias[n];
      if (a.up) {
        float up = dot(a, *up_output, row);
        if (a.up_bias) up += a.up_bias[n];
        value = gated_lane(a.nonlinearity, value, up, a.alpha, a.limit);
      } else {
        value = nonlinear_lane(a.nonlinearity, value);
      }
      if (a.scale != 1.0f) value *= a.scale;
      float& y = a.y[static_cast<size_t>(row) * a.y_stride + static_cast<size_t>(n)];
      y = a.accumulate ? y + value : value;
    }
  }
}

double peak(Activations, int64_t rounds) {
  float sums[4] = {};
  volatile float x = 1.0f, y = 0.5f;
  const float a = x, b = y;
  for (int64_t i = 0; i < rounds; ++i) {
    for (float& sum : sums) sum = std::fma(a, b, sum);
  }
  x = sums[0] + sums[1] + sums[2] + sums[3];
  return static_cast<double>(rounds) * 4;
}

size_t linear_loops(const PackedMatrix&, Activations, int, std::span<LinearLoop, kMostLinearLoops> loops) {
  loops[0] = {};
  return 1;
}

}  // namespace
}  // namespace reference

const KernelSet& reference_kernels() {
  static constexpr KernelSet set{.name = "reference",
                                 .quantize = reference::quantize,
                                 .linear = reference::linear,
                                 .linear_loops = reference::linear_loops,
                                 .normalize = reference::normalize,
                                 .multiply_gate = reference::multiply_gate,
                                 .softplus = reference::softplus,
                                 .soft_cap = reference::soft_cap,
                                 .softmax = reference::softmax,
                                 .sigmoid = reference::sigmoid,
                                 .rotate = reference::rotate,
                                 .prefetch_kv = reference::prefetch_kv,
                                 .store_kv = reference::store_kv,
                                 .attention = reference::attention,
                                 .merge = reference::merge,
                                 .short_conv = reference::short_conv,
                                 .gated_delta = reference::gated_delta,
                                 .mamba2 = reference::mamba2,
                                 .peak = reference::peak};
  return set;
}

}  // namespace quire
