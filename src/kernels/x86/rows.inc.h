// Norms, activation blocks and attention, written once over x86/vector.h. The sums are reference.cc's, in its order.

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/x86/vector.h"

namespace quire {
namespace {

QUIRE_INLINE float minus_infinity() { return -__builtin_inff(); }

float norm_factor(const float* x, int cols, float epsilon) {
  F squares = set1(0.0f);
  int i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
    const F v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (i < cols) {
    alignas(64) float last[kLanes] = {};
    for (int j = 0; i + j < cols; ++j) last[j] = x[i + j];
    const F v = load(last);
    squares = fma(v, v, squares);
  }
  return 1.0f / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(cols) + epsilon);
}

QUIRE_INLINE void write_int8(F x0, F x1, Int8Block& out) {
  const float largest = max_lanes(max(abs(x0), abs(x1)));
  out.scale = largest / 127.0f;
  const F inverse = set1(largest > 0 ? 127.0f / largest : 0.0f), top = set1(127.0f), bottom = set1(-127.0f);
  const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);  // kPairOrder, twice
  const F halves[2] = {x0, x1};
  for (int half = 0; half < 2; ++half) {
    const __m128i bytes = to_bytes(to_int(min(max(mul(halves[half], inverse), bottom), top)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + 16 * half), _mm_shuffle_epi8(bytes, order));
    out.half_sums[half] = sum_bytes(bytes);
  }
  out.sum = out.scale * static_cast<float>(out.half_sums[0] + out.half_sums[1]);
}

// bf16_to_f32(f32_to_bf16(x)), lane by lane.
QUIRE_INLINE F to_bf16(F x) {
  const auto truncate = [](I a) __attribute__((always_inline)) { return bits(shift_left<16>(shift_right<16>(a))); };
  const I raw = bits(x), odd = band(shift_right<16>(raw), set1(int32_t{1}));
  const F rounded = truncate(add(raw, add(odd, set1(int32_t{0x7fff}))));
  return where_number(rounded, truncate(bor(raw, set1(int32_t{0x400000}))), x);
}

QUIRE_INLINE void write_floats(F x0, F x1, bool round_to_bf16, FloatBlock& out) {
  store(out.x, x0);
  store(out.x + kLanes, x1);
  if (!round_to_bf16) return;  // the sum is used with bf16 only
  store(out.x, to_bf16(x0));
  store(out.x + kLanes, to_bf16(x1));
  float even = 0, odd = 0;
  for (int i = 0; i < kBlock; i += 2) {
    even += out.x[i];
    odd += out.x[i + 1];
  }
  out.sum = even + odd;
}

void quantize(const QuantizeArgs& a, int row_begin, int row_end) {
  for (int row = row_begin; row < row_end; ++row) {
    const float* x = a.x + static_cast<size_t>(row) * a.x_stride;
    std::byte* out = a.out + static_cast<size_t>(row) * a.out_stride;
    const F factor = set1(a.norm_weight ? norm_factor(x, a.cols, a.epsilon) : 1.0f);
    for (int k = 0; k < a.cols; k += kBlock) {
      F x0, x1, w0 = set1(1.0f), w1 = w0;
      if (k + kBlock <= a.cols) {
        x0 = load(x + k), x1 = load(x + k + kLanes);
        if (a.norm_weight) w0 = load(a.norm_weight + k), w1 = load(a.norm_weight + k + kLanes);
      } else {
        alignas(64) float last[2][kBlock] = {};
        for (int i = 0; k + i < a.cols; ++i)
          last[0][i] = x[k + i], last[1][i] = a.norm_weight ? a.norm_weight[k + i] : 1.0f;
        x0 = load(last[0]), x1 = load(last[0] + kLanes), w0 = load(last[1]), w1 = load(last[1] + kLanes);
      }
      if (a.norm_weight) x0 = mul(mul(x0, factor), w0), x1 = mul(mul(x1, factor), w1);
      const int b = k / kBlock;
      if (a.to == Activations::kInt8) {
        write_int8(x0, x1, reinterpret_cast<Int8Block*>(out)[b]);
      } else {
        write_floats(x0, x1, a.to == Activations::kBf16, reinterpret_cast<FloatBlock*>(out)[b]);
      }
    }
  }
}

// Keys of dimensions d, d + 1 of the 16 tokens of a page.
struct KeyPair {
  F even, odd;
};
template <KvType kType>
QUIRE_INLINE KeyPair load_keys(const std::byte* page, int d) {
  if constexpr (kType == KvType::kF32) {
    const float* k = reinterpret_cast<const float*>(page) + d * kPageTokens;
    return {load(k), load(k + kPageTokens)};
  } else if constexpr (kType == KvType::kF16) {
    const uint16_t* k = reinterpret_cast<const uint16_t*>(page) + d * kPageTokens;
    return {load_f16(k), load_f16(k + kPageTokens)};
  } else {
    const I pair = load_int(page + d * kPageTokens * 2);
    return {bits(shift_left<16>(pair)), bits(shift_left<16>(shift_right<16>(pair)))};
  }
}
// Values of tokens t, t + 1 of a page, dimensions d .. d + 15.
template <KvType kType>
QUIRE_INLINE KeyPair load_values(const std::byte* values, int padded, int t, int d) {
  if constexpr (kType == KvType::kF32) {
    const float* v = reinterpret_cast<const float*>(values) + t * padded + d;
    return {load(v), load(v + padded)};
  } else if constexpr (kType == KvType::kF16) {
    const uint16_t* v = reinterpret_cast<const uint16_t*>(values) + t * padded + d;
    return {load_f16(v), load_f16(v + padded)};
  } else {
    const I pair = load_int(values + (d / 16 * 256 + t / 2 * 32) * 2);
    return {bits(shift_left<16>(pair)), bits(shift_left<16>(shift_right<16>(pair)))};
  }
}

// All the state of a tile's queries.
struct Queries {
  int count = 0;
  alignas(64) float q[kMaxTileQueries][kMaxHeadDim];
  alignas(64) float acc[kMaxTileQueries][kMaxHeadDim];
  alignas(64) float scores[kMaxTileQueries][kAttentionBlock];
  float max[kMaxTileQueries], sum[kMaxTileQueries];
  int first[kMaxTileQueries], end[kMaxTileQueries];  // tokens of this split
};

template <KvType kType, int kCount>
QUIRE_INLINE void score_page(const std::byte* page, int padded, float scale, Queries& s, int query, int offset) {
  F even[kCount], odd[kCount];
  for (int i = 0; i < kCount; ++i) even[i] = odd[i] = set1(0.0f);
  for (int d = 0; d < padded; d += 2) {
    const KeyPair k = load_keys<kType>(page, d);
    for (int i = 0; i < kCount; ++i) {
      even[i] = fma(set1(s.q[query + i][d]), k.even, even[i]);
      odd[i] = fma(set1(s.q[query + i][d + 1]), k.odd, odd[i]);
    }
  }
  for (int i = 0; i < kCount; ++i) store(s.scores[query + i] + offset, mul(add(even[i], odd[i]), set1(scale)));
}

template <KvType kType, int kCount>
QUIRE_INLINE void weigh_values(const KvLayer& kv, const int32_t* pages, size_t head, int block, int begin, int end,
                               Queries& s, int query) {
  const int padded = kv.padded_dim();
  const size_t keys = static_cast<size_t>(padded * kPageTokens) * kv_value_bytes(kType);
  for (int d = 0; d < padded; d += kLanes) {
    F acc[kCount];
    for (int i = 0; i < kCount; ++i) acc[i] = load(s.acc[query + i] + d);
    // Weights outside a query's tokens are 0 and add nothing; pairs are whole because begin is even and an odd end is
    // masked.
    for (int t = begin & ~1; t < end; t += 2) {
      const std::byte* page = kv.data + static_cast<size_t>(pages[t / kPageTokens]) * kv.page_stride + head + keys;
      const KeyPair v = load_values<kType>(page, padded, t % kPageTokens, d);
      for (int i = 0; i < kCount; ++i) {
        if (t >= begin) acc[i] = fma(set1(s.scores[query + i][t - block]), v.even, acc[i]);
        if (t + 1 < end) acc[i] = fma(set1(s.scores[query + i][t + 1 - block]), v.odd, acc[i]);
      }
    }
    for (int i = 0; i < kCount; ++i) store(s.acc[query + i] + d, acc[i]);
  }
}

// Calls body<kCount> for runs of up to kQueryRows queries.
template <class Body>
QUIRE_INLINE void for_query_runs(int count, Body body) {
  int i = 0;
  if constexpr (kQueryRows >= 4) {
    for (; i + 4 <= count; i += 4) body.template operator()<4>(i);
    if (i + 3 <= count) body.template operator()<3>(i), i += 3;
  }
  for (; i + 2 <= count; i += 2) body.template operator()<2>(i);
  if (i < count) body.template operator()<1>(i);
}

// One split of all queries: tokens first[i] .. end[i] of query i.
template <KvType kType>
void attend_split(const KvLayer& kv, const int32_t* pages, size_t head, float scale, Queries& s) {
  int first = s.first[0], end = s.end[0];
  for (int i = 0; i < s.count; ++i) {
    s.max[i] = minus_infinity();
    s.sum[i] = 0;
    __builtin_memset(s.acc[i], 0, sizeof(float) * static_cast<size_t>(kv.padded_dim()));
    if (s.first[i] < s.end[i]) first = s.first[i] < first ? s.first[i] : first, end = s.end[i] > end ? s.end[i] : end;
  }
  for (int block = first / kAttentionBlock * kAttentionBlock; block < end; block += kAttentionBlock) {
    const int begin = first > block ? first : block,
              stop = end < block + kAttentionBlock ? end : block + kAttentionBlock;
    const int page_begin = begin / kPageTokens, page_end = (stop + kPageTokens - 1) / kPageTokens;
    for (int p = page_begin; p < page_end; ++p) {
      const std::byte* page = kv.data + static_cast<size_t>(pages[p]) * kv.page_stride + head;
      for_query_runs(
          s.count, [&]<int kCount>(int query) __attribute__((always_inline)) {
            score_page<kType, kCount>(page, kv.padded_dim(), scale, s, query, p * kPageTokens - block);
          });
    }
    for (int i = 0; i < s.count; ++i) {
      float* scores = s.scores[i];
      const int from = s.first[i] - block, to = s.end[i] - block;
      if (from >= kAttentionBlock || to <= 0 || from >= to) {
        __builtin_memset(scores, 0, sizeof s.scores[i]);  // no token of this query: nothing is added
        continue;
      }
      const F none = set1(minus_infinity());
      F largest = none;
      for (int l = 0; l < kAttentionBlock; l += kLanes) {
        const F v = within(load(scores + l), none, from - l, to - l);
        store(scores + l, v);
        largest = max(largest, v);
      }
      const float top = max_lanes(largest), m = top > s.max[i] ? top : s.max[i];
      alignas(64) float one[kLanes];
      store(one, exp(set1(s.max[i] - m)));
      const F correction = set1(one[0]);
      F sums = set1(0.0f);
      for (int l = 0; l < kAttentionBlock; l += kLanes) {
        const F weight = exp(sub(load(scores + l), set1(m)));
        store(scores + l, weight);
        sums = add(sums, weight);
      }
      for (int d = 0; d < kv.padded_dim(); d += kLanes) store(s.acc[i] + d, mul(load(s.acc[i] + d), correction));
      s.sum[i] = __builtin_fmaf(s.sum[i], one[0], sum_lanes(sums));
      s.max[i] = m;
    }
    for_query_runs(
        s.count, [&]<int kCount>(int query) __attribute__((always_inline)) {
          weigh_values<kType, kCount>(kv, pages, head, block, begin, stop, s, query);
        });
  }
}

// `acc` (unpadded results may follow it in memory: whole lanes only up to `dim`) absorbs the next split.
void absorb(float& max, float& sum, float* acc, float next_max, float next_sum, const float* next, int padded) {
  if (next_max == minus_infinity()) return;
  const float top = next_max > max ? next_max : max;
  alignas(64) float factors[kLanes] = {max - top, next_max - top};
  store(factors, exp(load(factors)));
  const F a = set1(factors[0]), b = set1(factors[1]);
  for (int d = 0; d < padded; d += kLanes) store(acc + d, fma(load(acc + d), a, mul(load(next + d), b)));
  sum = __builtin_fmaf(sum, factors[0], next_sum * factors[1]);
  max = top;
}

QUIRE_INLINE void write_result(const float* acc, float sum, float* out, int dim) {
  int d = 0;
  for (; d + kLanes <= dim; d += kLanes) store(out + d, div(load(acc + d), set1(sum)));
  for (; d < dim; ++d) out[d] = acc[d] / sum;
}

void attention(const AttentionArgs& a, const AttentionTile& tile) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim, padded = kv.padded_dim();
  const size_t head = static_cast<size_t>(tile.head / (a.heads / kv.kv_heads)) * kv.head_stride;
  Queries s;
  s.count = tile.rows * tile.heads;
  const auto row_of = [&](int i) { return static_cast<size_t>(tile.row + i / tile.heads); };
  const auto head_of = [&](int i) { return static_cast<size_t>((tile.head + i % tile.heads) * dim); };
  for (int i = 0; i < s.count; ++i) {
    __builtin_memset(s.q[i] + dim, 0, sizeof(float) * static_cast<size_t>(padded - dim));
    __builtin_memcpy(s.q[i], a.q + row_of(i) * a.q_stride + head_of(i), sizeof(float) * static_cast<size_t>(dim));
  }
  alignas(64) float totals[kMaxTileQueries][kMaxHeadDim];
  float max[kMaxTileQueries], sum[kMaxTileQueries];
  const bool whole = tile.partial == nullptr && tile.split_end - tile.split_begin > 1;
  for (int i = 0; i < s.count && whole; ++i) {
    max[i] = minus_infinity();
    sum[i] = 0;
    __builtin_memset(totals[i], 0, sizeof(float) * static_cast<size_t>(padded));
  }
  for (int split = tile.split_begin; split < tile.split_end; ++split) {
    for (int i = 0; i < s.count; ++i) {
      const int end = tile.position + i / tile.heads + 1, window = a.window > 0 && end > a.window ? end - a.window : 0;
      const int split_first = split * kAttentionSplit, split_end = split_first + kAttentionSplit;
      s.first[i] = window > split_first ? window : split_first;
      s.end[i] = end < split_end ? end : split_end;
    }
    switch (kv.type) {
      case KvType::kF32:
        attend_split<KvType::kF32>(kv, tile.pages, head, a.scale, s);
        break;
      case KvType::kF16:
        attend_split<KvType::kF16>(kv, tile.pages, head, a.scale, s);
        break;
      case KvType::kBf16:
        attend_split<KvType::kBf16>(kv, tile.pages, head, a.scale, s);
        break;
    }
    for (int i = 0; i < s.count && whole; ++i) absorb(max[i], sum[i], totals[i], s.max[i], s.sum[i], s.acc[i], padded);
  }
  for (int i = 0; i < s.count; ++i) {
    if (tile.partial) {
      float* out = tile.partial + static_cast<size_t>(i * (padded + 2));
      out[0] = s.max[i];
      out[1] = s.sum[i];
      __builtin_memcpy(out + 2, s.acc[i], sizeof(float) * static_cast<size_t>(padded));
    } else {
      float* out = a.out + row_of(i) * a.out_stride + head_of(i);
      write_result(whole ? totals[i] : s.acc[i], whole ? sum[i] : s.sum[i], out, dim);
    }
  }
}

void merge(const AttentionArgs& a, const AttentionMerge& m) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim, padded = kv.padded_dim();
  for (int i = 0; i < m.rows * m.heads; ++i) {
    alignas(64) float acc[kMaxHeadDim];
    __builtin_memset(acc, 0, sizeof(float) * static_cast<size_t>(padded));
    float max = minus_infinity(), sum = 0;
    for (int split = 0; split < m.splits; ++split) {
      const float* part =
          m.partials + static_cast<size_t>(split) * m.split_stride + static_cast<size_t>(i * (padded + 2));
      absorb(max, sum, acc, part[0], part[1], part + 2, padded);
    }
    write_result(acc, sum,
                 a.out + static_cast<size_t>(m.row + i / m.heads) * a.out_stride +
                     static_cast<size_t>((m.head + i % m.heads) * dim),
                 dim);
  }
}

}  // namespace
}  // namespace quire
