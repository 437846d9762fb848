// The definition of the kernels that work on rows of numbers, in plain scalar code.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/denormals.h"
#include "kernels/lanes.h"
#include "kernels/reference.h"

namespace quire::reference {
namespace {

// The sum of (x - mean)^2.
float sum_squares(const float* x, int count, float mean) {
  Lanes squares{};
  for (int i = 0; i < count; ++i) {
    float& chain = squares[static_cast<size_t>(i % kLanes)];
    chain = std::fma(x[i] - mean, x[i] - mean, chain);
  }
  return sum_lanes(squares);
}

float rms_factor(const float* x, int count, float epsilon) {
  return 1.0f / std::sqrt(sum_squares(x, count, 0) / static_cast<float>(count) + epsilon);
}

float mean_of(const float* x, int count) {
  Lanes sums{};
  for (int i = 0; i < count; ++i) sums[static_cast<size_t>(i % kLanes)] += x[i];
  return sum_lanes(sums) / static_cast<float>(count);
}

// The largest magnitude below the threshold, or NaN if there is one.
float largest_below(const float* x, int count, float threshold) {
  uint32_t bits = 0;  // magnitudes have the order of their bits, and NaN is the largest
  for (int i = 0; i < count; ++i)
    if (!(std::abs(x[i]) >= threshold)) bits = std::max(bits, std::bit_cast<uint32_t>(std::abs(x[i])));
  return std::bit_cast<float>(bits);
}

float inverse_scale(float largest) { return largest >= kSmallestInt8 ? 127.0f / largest : 0.0f; }

int8_t round_to_int8(float value) {  // NaN is -127
  return static_cast<int8_t>(std::nearbyint(value > -127.0f ? value : -127.0f));
}

void write_int8(const float* x, Int8Block& out) {
  const float largest = largest_below(x, kBlockInputs, std::numeric_limits<float>::quiet_NaN());
  out.scale = largest / 127.0f;
  out.half_sums[0] = out.half_sums[1] = 0;
  for (int i = 0; i < kBlockInputs; ++i) {
    const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
    out.q[i] = round_to_int8(x[k] * inverse_scale(largest));
    out.half_sums[k / 16] = static_cast<int16_t>(out.half_sums[k / 16] + out.q[i]);
  }
  out.sum = out.scale * static_cast<float>(out.half_sums[0] + out.half_sums[1]);
  out.outliers = 0;
}

// The least magnitude of a row's outliers; NaN if it has none.
float outlier_limit(std::span<const float> x, int cols, float outlier_ratio) {
  Lanes sums{};
  for (size_t i = 0; i < x.size(); ++i) sums[i % kLanes] += std::abs(x[i]);
  const float mean = sum_lanes(sums) / static_cast<float>(cols);
  return mean >= kSmallestOutliers && std::isfinite(mean) ? outlier_ratio * mean
                                                          : std::numeric_limits<float>::quiet_NaN();
}

// x: padded to whole blocks.
void write_int8x2(std::vector<float> x, int cols, float outlier_ratio, Int8Block* out) {
  const size_t blocks = x.size() / kBlockInputs;
  auto* outliers = reinterpret_cast<Outlier*>(out + blocks);
  const float limit = outlier_limit(x, cols, outlier_ratio);
  uint32_t count = 0;
  for (size_t b = 0; b < blocks; ++b) {
    const std::span block = std::span(x).subspan(b * kBlockInputs, kBlockInputs);
    const auto is_outlier = [limit](float input) { return std::abs(input) >= limit; };
    const bool fit = count + static_cast<uint32_t>(std::ranges::count_if(block, is_outlier)) <= kMostOutliers;
    for (size_t i = 0; fit && i < kBlockInputs; ++i) {
      if (is_outlier(block[i]))
        outliers[count++] = {static_cast<int32_t>(b * kBlockInputs + i), std::exchange(block[i], 0.0f)};
    }
    write_int8(block.data(), out[b]);
  }
  out[0].outliers = count;
}

void write_int8_row(const float* x, float largest, float threshold, Int8RowBlock& out) {
  out.scale = largest / 127.0f;
  out.sum = 0;
  out.outliers = 0;
  for (int i = 0; i < kBlockInputs; ++i) {
    const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
    const bool outlier = std::abs(x[k]) >= threshold;
    out.q[i] = outlier ? int8_t{0} : round_to_int8(x[k] * inverse_scale(largest));
    out.sum += out.q[i];
    if (outlier) {
      out.outliers |= 1u << k;
      out.x[k] = outlier_f16(x[k]);
    }
  }
}

void write_floats(const float* x, bool round, FloatBlock& out) {
  for (int half = 0; half < 2; ++half) {
    float even = 0, odd = 0;
    for (int i = 16 * half; i < 16 * (half + 1); i += 2) {
      out.x[i] = round ? bf16_to_f32(f32_to_bf16(x[i])) : x[i];
      out.x[i + 1] = round ? bf16_to_f32(f32_to_bf16(x[i + 1])) : x[i + 1];
      even += out.x[i];
      odd += out.x[i + 1];
    }
    out.half_sums[half] = normal_or_zero(even + odd);
  }
  out.sum = out.half_sums[0] + out.half_sums[1];
}

void round_row_to_e4m3(std::span<float> row) {
  bool too_large = false;
  float largest = 0;
  for (const float x : row) {
    if (!(std::abs(x) < kLeastTooLargeForE4M3)) too_large = true;
    largest = std::max(largest, std::abs(x));
  }
  if (too_large) {
    std::ranges::fill(row, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const uint32_t least_normal = e4m3_least_normal(e4m3_exponent(largest));
  for (float& x : row) x = round_to_e4m3(x, least_normal);
}

}  // namespace

void quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_stride;
    const float factor = a.norm_weight ? rms_factor(x, a.cols, a.epsilon) : 1.0f;
    const int blocks = (a.cols + kBlockInputs - 1) / kBlockInputs;
    std::vector<float> padded(static_cast<size_t>(blocks * kBlockInputs));
    for (int i = 0; i < a.cols; ++i)
      padded[static_cast<size_t>(i)] = a.norm_weight ? x[i] * factor * a.norm_weight[i] : x[i];
    if (a.to == Activations::kInt8x2) {
      write_int8x2(std::move(padded), a.cols, a.outlier_ratio, reinterpret_cast<Int8Block*>(out));
      continue;
    }
    const float largest =
        a.to == Activations::kInt8Row ? largest_below(padded.data(), blocks * kBlockInputs, a.threshold) : 0;
    if (a.to_e4m3) round_row_to_e4m3(padded);
    for (int b = 0; b < blocks; ++b) {
      const float* block = &padded[static_cast<size_t>(b * kBlockInputs)];
      if (a.to == Activations::kInt8) {
        write_int8(block, reinterpret_cast<Int8Block*>(out)[b]);
      } else if (a.to == Activations::kInt8Row) {
        write_int8_row(block, largest, a.threshold, reinterpret_cast<Int8RowBlock*>(out)[b]);
      } else {
        write_floats(block, a.to == Activations::kBf16, reinterpret_cast<FloatBlock*>(out)[b]);
      }
    }
  }
}

void normalize(const NormArgs& a, int row_begin, int row_end) {
  const auto size = static_cast<float>(a.size);
  for (int row = row_begin; row < row_end; ++row) {
    for (int group = 0; group < a.groups; ++group) {
      const auto at = static_cast<size_t>(group * a.size), weights_at = static_cast<size_t>(group) * a.weight_stride;
      const float* x = a.x + static_cast<size_t>(row) * a.x_stride + at;
      float* y = a.y + static_cast<size_t>(row) * a.y_stride + at;
      float mean = 0, factor = 1;
      if (a.kind == NormKind::kRms) factor = rms_factor(x, a.size, a.epsilon);
      if (a.kind == NormKind::kL2) factor = 1.0f / std::sqrt(sum_squares(x, a.size, 0) + a.epsilon);
      if (a.kind == NormKind::kLayer) {
        mean = mean_of(x, a.size);
        factor = 1.0f / std::sqrt(sum_squares(x, a.size, mean) / size + a.epsilon);
      }
      for (int i = 0; i < a.size; ++i) {
        float value = (x[i] - mean) * factor;
        if (a.weight) value *= a.weight[weights_at + static_cast<size_t>(i)];
        if (a.bias) value += a.bias[weights_at + static_cast<size_t>(i)];
        y[i] = a.accumulate ? std::fma(value, a.scale, y[i]) : value * a.scale;
      }
    }
  }
}

void multiply_gate(const GateArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    float* y = a.y + static_cast<size_t>(row) * a.y_stride;
    const float* gate = a.gate + static_cast<size_t>(row) * a.gate_stride;
    for (int i = 0; i < a.cols; ++i) y[i] = gated_lane(a.nonlinearity, gate[i], y[i], a.alpha, a.limit);
  }
}

void softplus(const SoftplusArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
    float* y = a.y + static_cast<size_t>(row) * a.y_stride;
    for (int i = 0; i < a.cols; ++i) {
      const float value = softplus_lane(a.bias ? x[i] + a.bias[i] : x[i]);
      y[i] = a.factor ? value * a.factor[i] : value;
    }
  }
}

void soft_cap(float* x, int count, float cap) {
  for (int i = 0; i < count; ++i) x[i] = soft_cap_lane(x[i], cap);
}

void softmax(float* x, int count) {
  float largest = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < count; ++i) largest = std::max(largest, x[i]);  // ignores NaN
  Lanes sums{};
  for (int i = 0; i < count; ++i) {
    x[i] = std::isnan(x[i]) ? x[i] : exp_lane(x[i] - largest);
    sums[static_cast<size_t>(i % kLanes)] += x[i];
  }
  const float sum = sum_lanes(sums);
  for (int i = 0; i < count; ++i) x[i] /= sum;
}

void sigmoid(float* x, int count) {
  for (int i = 0; i < count; ++i) x[i] = sigmoid_lane(x[i]);
}

}  // namespace quire::reference
