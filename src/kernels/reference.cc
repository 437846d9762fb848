// The definition of every kernel in plain scalar code: obvious, slow, and the oracle for all others.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "kernels/denormals.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"
#define QUIRE_ISA reference
#include "kernels/rope_store.inc.h"

namespace quire {
namespace reference {
namespace {

float norm_factor(const float* x, int cols, float epsilon) {
  Lanes squares{};
  for (int i = 0; i < cols; ++i)
    squares[static_cast<size_t>(i % kLanes)] = std::fma(x[i], x[i], squares[static_cast<size_t>(i % kLanes)]);
  return 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(cols) + epsilon);
}

void write_int8(const float* x, Int8Block& out) {
  uint32_t bits = 0;  // magnitudes have the order of their bits, and NaN is the largest
  for (int i = 0; i < kBlockInputs; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(std::abs(x[i])));
  const auto largest = std::bit_cast<float>(bits);
  out.scale = largest / 127.0f;
  const float inverse = largest >= kSmallestInt8 ? 127.0f / largest : 0.0f;
  out.half_sums[0] = out.half_sums[1] = 0;
  for (int i = 0; i < kBlockInputs; ++i) {
    const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
    const float value = x[k] * inverse;
    const int q = static_cast<int>(std::nearbyint(value > -127.0f ? value : -127.0f));  // NaN is -127
    out.q[i] = static_cast<int8_t>(q);
    out.half_sums[k / 16] += q;
  }
  out.sum = out.scale * static_cast<float>(out.half_sums[0] + out.half_sums[1]);
}

void write_floats(const float* x, bool round, FloatBlock& out) {
  float even = 0, odd = 0;
  for (int i = 0; i < kBlockInputs; i += 2) {
    out.x[i] = round ? bf16_to_f32(f32_to_bf16(x[i])) : x[i];
    out.x[i + 1] = round ? bf16_to_f32(f32_to_bf16(x[i + 1])) : x[i + 1];
    even += out.x[i];
    odd += out.x[i + 1];
  }
  out.sum = even + odd;
}

void quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_stride;
    const float factor = a.norm_weight ? norm_factor(x, a.cols, a.epsilon) : 1.0f;
    for (int b = 0; b * kBlockInputs < a.cols; ++b) {
      float block[kBlockInputs] = {};
      for (int i = 0; i < kBlockInputs && b * kBlockInputs + i < a.cols; ++i) {
        const float value = x[b * kBlockInputs + i];
        block[i] = a.norm_weight ? value * factor * a.norm_weight[b * kBlockInputs + i] : value;
      }
      if (a.to == Activations::kInt8) {
        write_int8(block, reinterpret_cast<Int8Block*>(out)[b]);
      } else {
        write_floats(block, a.to == Activations::kBf16, reinterpret_cast<FloatBlock*>(out)[b]);
      }
    }
  }
}

float dot_int8(const PackedMatrix& w, int n, const Int8Block* x) {
  const PackedFormat format = packed_format(w.type);
  float acc = 0, low = 0;
  for (int b = 0; b < w.blocks(); ++b) {
    for (int begin = 0; begin < kBlockInputs; begin += format.group) {
      int32_t dot = 0;
      for (int i = 0; i < kBlockInputs; ++i) {
        const int k = i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
        if (k / format.group == begin / format.group) dot += packed_parts(w, n, b * kBlockInputs + k).q * x[b].q[i];
      }
      const WeightParts group = packed_parts(w, n, b * kBlockInputs + begin);
      acc = std::fma(static_cast<float>(dot), group.scale * x[b].scale, acc);
      if (format.has_minimum) low = std::fma(group.minimum, x[b].sum, low);
    }
  }
  return format.has_minimum ? acc + low : acc;
}

float dot_bf16(const PackedMatrix& w, int n, const FloatBlock* x) {
  const PackedFormat format = packed_format(w.type);
  float acc = 0, low = 0;
  for (int b = 0; b < w.blocks(); ++b) {
    for (int begin = 0; begin < kBlockInputs; begin += format.group) {
      float even = 0, odd = 0;
      for (int k = begin; k < begin + format.group; k += 2) {
        even = std::fma(x[b].x[k], static_cast<float>(packed_parts(w, n, b * kBlockInputs + k).q), even);
        odd = std::fma(x[b].x[k + 1], static_cast<float>(packed_parts(w, n, b * kBlockInputs + k + 1).q), odd);
      }
      const WeightParts group = packed_parts(w, n, b * kBlockInputs + begin);
      acc = std::fma(even + odd, group.scale, acc);
      if (format.has_minimum) low = std::fma(group.minimum, x[b].sum, low);
    }
  }
  return format.has_minimum ? acc + low : acc;
}

// Dequantized weights: kF32, and kBf16 for weights that have no scale.
float dot_float(const PackedMatrix& w, int n, const FloatBlock* x) {
  float acc = 0;
  for (int b = 0; b < w.blocks(); ++b) {
    float even = 0, odd = 0;
    for (int k = 0; k < kBlockInputs; k += 2) {
      const auto weight = [&](int i) {
        return b * kBlockInputs + i < w.cols ? packed_weight(w, n, b * kBlockInputs + i) : 0.0f;
      };
      even = std::fma(x[b].x[k], weight(k), even);
      odd = std::fma(x[b].x[k + 1], weight(k + 1), odd);
    }
    acc += even + odd;
  }
  return acc;
}

float dot(const LinearArgs& a, const PackedMatrix& w, int n, int row) {
  const std::byte* x = a.x + static_cast<size_t>(row) * a.x_stride;
  if (a.activations == Activations::kInt8) return dot_int8(w, n, reinterpret_cast<const Int8Block*>(x));
  const auto* floats = reinterpret_cast<const FloatBlock*>(x);
  return a.activations == Activations::kBf16 && is_quantized(w.type) ? dot_bf16(w, n, floats) : dot_float(w, n, floats);
}

void linear(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  const FlushDenormals flush(a.activations == Activations::kBf16);
  for (int row = row_begin; row < row_end; ++row) {
    for (int n = panel_begin * kPanel; n < std::min(panel_end * kPanel, a.weights->rows); ++n) {
      float value = dot(a, *a.weights, n, row);
      if (a.bias) value += a.bias[n];
      if (a.up) {
        float up = dot(a, *a.up, n, row);
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

float key(const KvLayer& kv, const std::byte* page, int t, int d) {
  switch (kv.type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(page)[d * kPageTokens + t];
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(page)[d * kPageTokens + t]);
    case KvType::kBf16:
      break;
  }
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(page)[d / 2 * 32 + t * 2 + d % 2]);
}

float value(const KvLayer& kv, const std::byte* page, int t, int d) {
  const int padded = kv.padded_dim();
  const std::byte* values = page + static_cast<size_t>(padded * kPageTokens) * kv_value_bytes(kv.type);
  switch (kv.type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(values)[t * padded + d];
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(values)[t * padded + d]);
    case KvType::kBf16:
      break;
  }
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(values)[d / 16 * 256 + t / 2 * 32 + d % 16 * 2 + t % 2]);
}

// acc + the products of x and y over one chunk of n elements.
template <class X, class Y>
float add_products(float acc, int n, X x, Y y) {
  float even = 0, odd = 0;
  for (int i = 0; i < n; i += 2) {
    even = std::fma(x(i), y(i), even);
    if (i + 1 < n) odd = std::fma(x(i + 1), y(i + 1), odd);
  }
  return acc + (even + odd);
}

// What a query knows after some tokens: the largest score, the sums of the weights relative to it, the weighted values.
struct Partial {
  float max = -std::numeric_limits<float>::infinity();
  Lanes sums{};
  std::vector<float> acc;

  void grow(float to) {
    const float correction = exp_lane(max - to);
    for (float& sum : sums) sum *= correction;
    for (float& value : acc) {
      value *= correction;
      if (std::abs(value) < kSmallestSum) value = 0;
    }
    max = to;
  }
};

// One split of one query: tokens [first, end) of it.
Partial attend_split(const KvLayer& kv, const float* query, const int32_t* pages, int kv_head, float scale, int first,
                     int end) {
  const auto rounded = [&](float x) { return kv.type == KvType::kBf16 ? bf16_to_f32(attention_bf16(x)) : x; };
  const auto page = [&](int token) {
    return kv.data + static_cast<size_t>(pages[token / kPageTokens]) * kv.page_stride +
           static_cast<size_t>(kv_head) * kv.head_stride;
  };
  Partial part;
  part.acc.assign(static_cast<size_t>(kv.head_dim), 0.0f);
  for (int block = first / kAttentionBlock * kAttentionBlock; block < end; block += kAttentionBlock) {
    const int begin = std::max(first, block), stop = std::min(end, block + kAttentionBlock);
    float scores[kAttentionBlock], largest = -std::numeric_limits<float>::infinity();
    for (int t = begin; t < stop; ++t) {
      float score = 0;
      for (int d = 0; d < kv.head_dim; d += kAttentionChunk) {
        score = add_products(
            score, std::min(kAttentionChunk, kv.head_dim - d), [&](int i) { return rounded(query[d + i]); },
            [&](int i) { return key(kv, page(t), t % kPageTokens, d + i); });
      }
      scores[t - block] = score * scale;
      largest = std::max(largest, scores[t - block]);
    }
    if (largest > part.max) part.grow(largest);
    float weights[kAttentionBlock] = {};
    for (int t = begin; t < stop; ++t) {
      const float x = scores[t - block] - part.max;
      weights[t - block] = kv.type == KvType::kBf16 ? weight_lane(x) : exp_lane(x);
      part.sums[static_cast<size_t>(t % kLanes)] += weights[t - block];
    }
    for (int chunk = block; chunk < stop; chunk += kAttentionChunk) {
      for (int d = 0; d < kv.head_dim; ++d) {
        float& acc = part.acc[static_cast<size_t>(d)];
        acc = add_products(
            acc, kAttentionChunk, [&](int i) { return weights[chunk - block + i]; },
            [&](int i) {
              const int t = chunk + i;
              return t >= begin && t < stop ? value(kv, page(t), t % kPageTokens, d) : 0.0f;
            });
      }
    }
  }
  return part;
}

// `into` absorbs the next split. A split without tokens (before the window) changes nothing.
void absorb(float& max, float& sum, float* acc, float next_max, float next_sum, const float* next, int dim) {
  if (next_max == -std::numeric_limits<float>::infinity()) return;
  const float top = std::max(max, next_max), a = exp_lane(max - top), b = exp_lane(next_max - top);
  for (int d = 0; d < dim; ++d) acc[d] = std::fma(acc[d], a, next[d] * b);
  sum = std::fma(sum, a, next_sum * b);
  max = top;
}

void attention(const AttentionArgs& a, const AttentionTile& tile) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim, kv_head = tile.head / (a.heads / kv.kv_heads);
  for (int r = 0; r < tile.rows; ++r) {
    const int end = tile.position + r + 1, window_begin = a.window > 0 ? std::max(0, end - a.window) : 0;
    for (int g = 0; g < tile.heads; ++g) {
      const size_t head = static_cast<size_t>((tile.head + g) * dim);
      const float* q = a.q + static_cast<size_t>(tile.row + r) * a.q_stride + head;
      float total_max = -std::numeric_limits<float>::infinity(), total_sum = 0;
      std::vector<float> total(static_cast<size_t>(dim), 0.0f);
      for (int split = tile.split_begin; split < tile.split_end; ++split) {
        const int first = std::max(window_begin, split * kAttentionSplit),
                  stop = std::min(end, (split + 1) * kAttentionSplit);
        Partial part;
        part.acc.assign(static_cast<size_t>(dim), 0.0f);
        if (first < stop) part = attend_split(kv, q, tile.pages, kv_head, a.scale, first, stop);
        const float sum = sum_lanes(part.sums);
        if (tile.partial) {
          float* out = tile.partial + static_cast<size_t>((r * tile.heads + g) * (kv.padded_dim() + 2));
          out[0] = part.max;
          out[1] = sum;
          std::copy(part.acc.begin(), part.acc.end(), out + 2);
        } else {
          absorb(total_max, total_sum, total.data(), part.max, sum, part.acc.data(), dim);
        }
      }
      if (tile.partial) continue;
      float* out = a.out + static_cast<size_t>(tile.row + r) * a.out_stride + head;
      for (int d = 0; d < dim; ++d) out[d] = total[static_cast<size_t>(d)] / total_sum;
    }
  }
}

void merge(const AttentionArgs& a, const AttentionMerge& m) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim;
  for (int i = 0; i < m.rows * m.heads; ++i) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    float* out = a.out + static_cast<size_t>(m.row + i / m.heads) * a.out_stride +
                 static_cast<size_t>((m.head + i % m.heads) * dim);
    std::fill_n(out, dim, 0.0f);
    for (int split = 0; split < m.splits; ++split) {
      const float* part =
          m.partials + static_cast<size_t>(split) * m.split_stride + static_cast<size_t>(i * (kv.padded_dim() + 2));
      absorb(max, sum, out, part[0], part[1], part + 2, dim);
    }
    for (int d = 0; d < dim; ++d) out[d] /= sum;
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

}  // namespace
}  // namespace reference

const KernelSet& reference_kernels() {
  static constexpr KernelSet set{.name = "reference",
                                 .quantize = reference::quantize,
                                 .linear = reference::linear,
                                 .rope_store = reference::rope_store,
                                 .attention = reference::attention,
                                 .merge = reference::merge,
                                 .peak = reference::peak};
  return set;
}

}  // namespace quire
