// The definition of attention in plain scalar code.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/head_rotation.h"
#include "kernels/lanes.h"
#include "kernels/reference.h"

namespace quire::reference {
namespace {

float int4_code(uint32_t eight, int i) {
  return static_cast<float>(int4_number(static_cast<int>(eight >> int4_shift(i) & 15)));
}

// The number of dimension d of a token's key; of a code, without its scale.
float key(const KvLayer& kv, const std::byte* page, int t, int d) {
  const int plain = d * kPageTokens + t;
  switch (kv.type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(page)[plain];
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(page)[plain]);
    case KvType::kInt8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(page)[plain]);
    case KvType::kFp8:
      return e4m3_to_f32(reinterpret_cast<const uint8_t*>(page)[plain]) / 256;
    case KvType::kInt4:
      return int4_code(reinterpret_cast<const uint32_t*>(page)[d / 8 * kPageTokens + t], d % 8);
    case KvType::kBf16:
      break;
  }
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(page)[d / 2 * 32 + t * 2 + d % 2]);
}

float value(const KvLayer& kv, const std::byte* page, int t, int d) {
  const int padded = kv.padded_value(), in_lines = d / 16 * 16 * kPageTokens + t * 16 + d % 16;
  const std::byte* values = page + kv.values_offset();
  switch (kv.type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(values)[t * padded + d];
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(values)[t * padded + d]);
    case KvType::kInt8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(values)[in_lines]);
    case KvType::kFp8:
      return e4m3_to_f32(reinterpret_cast<const uint8_t*>(values)[in_lines]) / 256;
    case KvType::kInt4:
      return int4_code(reinterpret_cast<const uint32_t*>(values)[d / 16 * 32 + t / 8 * 16 + d % 16], t % 8);
    case KvType::kBf16:
      break;
  }
  return bf16_to_f32(reinterpret_cast<const uint16_t*>(values)[d / 16 * 256 + t / 2 * 32 + d % 16 * 2 + t % 2]);
}

// What multiplies the codes of a token's key and value.
struct Scales {
  float key = 1, value = 1;
};
Scales scales(const KvLayer& kv, const std::byte* page, int t) {
  if (!has_codes(kv.type)) return {};
  const std::byte* at = page + kv.scales_offset();
  if (kv.type == KvType::kInt8) {
    const auto* scales = reinterpret_cast<const float*>(at);
    return {scales[t], scales[kPageTokens + t]};
  }
  const auto* scales = reinterpret_cast<const uint16_t*>(at);
  return {bf16_to_f32(scales[t]), bf16_to_f32(scales[kPageTokens + t])};
}

float weight_of(KvType type, float x) {
  if (type == KvType::kBf16) return weight_lane(x);
  return has_codes(type) ? unrounded_weight_lane(x) : exp_lane(x);
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

// A query: its numbers, rotated if keys are, its position, and the tokens [first, end) that it sees.
struct Query {
  std::vector<float> numbers;
  int head, position, first, end;

  Query(const AttentionArgs& a, const AttentionTile& tile, int r, int g)
      : numbers(static_cast<size_t>(a.kv->key_dim)),
        head(tile.head + g),
        position(tile.position + r),
        first(a.window > 0 ? std::max(0, position + 1 - a.window) : 0),
        end(a.causal       ? position + 1
            : a.window > 0 ? std::min(tile.end, position + a.window)
                           : tile.end) {
    const float* q =
        a.q + static_cast<size_t>(tile.row + r) * a.q_stride + static_cast<size_t>((tile.head + g) * a.kv->key_dim);
    std::copy_n(q, numbers.size(), numbers.begin());
    if (rotates_heads(a.kv->type)) rotate_head(numbers.data(), a.kv->key_dim);
  }
};

float score_of(const AttentionArgs& a, const Query& query, int token, float product) {
  float score = product * a.scale;
  if (a.soft_cap != 0) score = soft_cap_lane(score, a.soft_cap);
  if (a.slopes) score = std::fma(a.slopes[query.head], -std::abs(static_cast<float>(token - query.position)), score);
  return score;
}

// Of a page's int4 keys: products with differences become those with keys.
void add_means(float* products) {
  std::array<float, kPageTokens> means{};
  for (size_t t = 0; t < means.size(); ++t) means[t] = kMeanShares[t] * products[t];
  for (size_t d = 1; d < means.size(); d *= 2) {
    const auto before = means;
    for (size_t t = 0; t < means.size(); ++t) means[t] = before[t] + (t < d ? 0.0f : before[t - d]);
  }
  for (size_t t = 0; t < means.size(); ++t) products[t] = products[t] + (t < 1 ? 0.0f : means[t - 1]);
}

// The part of a query's attention that reads tokens [first, end).
Partial attend_split(const AttentionArgs& a, const Query& query, const int32_t* pages, int first, int end) {
  const KvLayer& kv = *a.kv;
  const int kv_head = query.head / (a.heads / kv.kv_heads);
  const auto rounded = [&](float x) { return multiplies_bf16(kv.type) ? bf16_to_f32(attention_bf16(x)) : x; };
  const auto page = [&](int token) {
    return kv.data + static_cast<size_t>(pages[token / kPageTokens]) * kv.page_stride +
           static_cast<size_t>(kv_head) * kv.head_stride;
  };
  Partial part;
  part.acc.assign(static_cast<size_t>(kv.value_dim), 0.0f);
  for (int block = first / kAttentionBlock * kAttentionBlock; block < end; block += kAttentionBlock) {
    const int begin = std::max(first, block), stop = std::min(end, block + kAttentionBlock);
    float scores[kAttentionBlock] = {}, largest = -std::numeric_limits<float>::infinity();
    const int first_of_page = begin / kPageTokens * kPageTokens;  // of int4, all keys of a page count
    for (int t = kv.type == KvType::kInt4 ? first_of_page : begin; t < stop; ++t) {
      float& score = scores[t - block];
      for (int d = 0; d < kv.key_dim; d += kAttentionChunk) {
        score = add_products(
            score, std::min(kAttentionChunk, kv.key_dim - d),
            [&](int i) { return rounded(query.numbers[static_cast<size_t>(d + i)]); },
            [&](int i) { return key(kv, page(t), t % kPageTokens, d + i); });
      }
      score *= scales(kv, page(t), t % kPageTokens).key;
    }
    for (int t = first_of_page; t < stop && kv.type == KvType::kInt4; t += kPageTokens) add_means(scores + (t - block));
    for (int t = begin; t < stop; ++t) {
      scores[t - block] = score_of(a, query, t, scores[t - block]);
      largest = std::max(largest, scores[t - block]);
    }
    if (largest > part.max) part.grow(largest);
    float weights[kAttentionBlock] = {};
    for (int t = begin; t < stop; ++t) {
      const float x = scores[t - block] - part.max;
      float& weight = weights[t - block];
      weight = weight_of(kv.type, x);
      part.sums[static_cast<size_t>(t % kLanes)] += weight;
      if (has_codes(kv.type)) weight = bf16_to_f32(f32_to_bf16(weight * scales(kv, page(t), t % kPageTokens).value));
    }
    for (int chunk = block; chunk < stop; chunk += kAttentionChunk) {
      for (int d = 0; d < kv.value_dim; ++d) {
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

// Absorbs the sink, if there is one, and writes the result.
void finish(const AttentionArgs& a, int head, float max, float sum, std::vector<float>& acc, float* out) {
  const std::vector<float> nothing(acc.size(), 0.0f);
  const int dim = a.kv->value_dim;
  if (a.sinks) absorb(max, sum, acc.data(), a.sinks[head], 1.0f, nothing.data(), dim);
  for (int d = 0; d < dim; ++d) out[d] = acc[static_cast<size_t>(d)] / sum;
  if (rotates_heads(a.kv->type)) rotate_head_back(out, dim);
}

float* output_of(const AttentionArgs& a, int row, int head) {
  return a.out + static_cast<size_t>(row) * a.out_stride + static_cast<size_t>(head * a.kv->value_dim);
}

}  // namespace

namespace {

void scale_rotated(float* x, int dim) {
  for (int i = 0; i < dim; ++i) x[i] *= kRotationSigns[static_cast<size_t>(i)] * rotation_scale(rotated_block(dim));
}
void add_rotated_pairs(float* x, int dim) {
  const int block = rotated_block(dim);
  for (int distance = 1; distance < block; distance *= 2) {
    for (int i = 0; i < dim; ++i) {
      if (i & distance) continue;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
  }
}

}  // namespace

void rotate_head(float* x, int dim) {
  if (rotated_block(dim) == 1) return;
  scale_rotated(x, dim);
  add_rotated_pairs(x, dim);
}
void rotate_head_back(float* x, int dim) {
  if (rotated_block(dim) == 1) return;
  add_rotated_pairs(x, dim);
  scale_rotated(x, dim);
}

void attention(const AttentionArgs& a, const AttentionTile& tile) {
  const KvLayer& kv = *a.kv;
  const auto dim = static_cast<size_t>(kv.value_dim);
  for (int r = 0; r < tile.rows; ++r) {
    for (int g = 0; g < tile.heads; ++g) {
      const Query query(a, tile, r, g);
      float total_max = -std::numeric_limits<float>::infinity(), total_sum = 0;
      std::vector<float> total(dim, 0.0f);
      for (int split = tile.split_begin; split < tile.split_end; ++split) {
        const int first = std::max(query.first, split * kAttentionSplit),
                  stop = std::min(query.end, (split + 1) * kAttentionSplit);
        Partial part;
        part.acc.assign(dim, 0.0f);
        if (first < stop) part = attend_split(a, query, tile.pages, first, stop);
        const float sum = sum_lanes(part.sums);
        if (tile.partial) {
          float* out = tile.partial + static_cast<size_t>((r * tile.heads + g) * (kv.padded_value() + 2));
          out[0] = part.max;
          out[1] = sum;
          std::copy(part.acc.begin(), part.acc.end(), out + 2);
        } else {
          absorb(total_max, total_sum, total.data(), part.max, sum, part.acc.data(), kv.value_dim);
        }
      }
      if (!tile.partial) finish(a, query.head, total_max, total_sum, total, output_of(a, tile.row + r, query.head));
    }
  }
}

void merge(const AttentionArgs& a, const AttentionMerge& m) {
  const KvLayer& kv = *a.kv;
  for (int i = 0; i < m.rows * m.heads; ++i) {
    float max = -std::numeric_limits<float>::infinity(), sum = 0;
    std::vector<float> total(static_cast<size_t>(kv.value_dim), 0.0f);
    for (int split = 0; split < m.splits; ++split) {
      const float* part =
          m.partials + static_cast<size_t>(split) * m.split_stride + static_cast<size_t>(i * (kv.padded_value() + 2));
      absorb(max, sum, total.data(), part[0], part[1], part + 2, kv.value_dim);
    }
    const int head = m.head + i % m.heads;
    finish(a, head, max, sum, total, output_of(a, m.row + i / m.heads, head));
  }
}

}  // namespace quire::reference
