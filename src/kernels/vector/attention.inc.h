// Attention over pages, written once over the alphabet and the unit that multiplies chunks (attention_chunk.inc.h). Sums
// are taken in the order of reference_attention.cc.
#pragma once

#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"
#include "kernels/vector/attention_chunk.inc.h"
#include "kernels/vector/functions.h"
#include "kernels/vector/head_rotation.inc.h"

namespace quire::QUIRE_ISA {
namespace {

QUIRE_INLINE float minus_infinity() { return -__builtin_inff(); }

// attention_bf16() as float32.
QUIRE_INLINE Floats16 round_bf16(Floats16 x) { return to_bf16(without_small(x, Floats16::all(kSmallestRounded))); }

// bounded_weight_lane().
template <bool kRounded>
QUIRE_INLINE Floats16 weight(Floats16 x) {
  namespace c = weight_constants;
  const Floats16 u = fma(x, Floats16::all(c::kLog2E), Floats16::all(-0.5f)), whole = add(u, Floats16::all(c::kWhole)),
                 r = sub(u, sub(whole, Floats16::all(c::kWhole)));
  Floats16 p = Floats16::all(c::kPolynomial[0]);
  for (int i = 1; i < 5; ++i) p = fma(p, r, Floats16::all(c::kPolynomial[i]));
  if constexpr (kRounded) p = sub(add(p, Floats16::all(c::kRound)), Floats16::all(c::kRound));
  return where_at_least(bits(add(bits(p), shift_left<23>(bits(whole)))), x, Floats16::all(c::kLowest));
}

// All the state of a tile's queries.
struct Queries {
  int count = 0;
  // Floats between queries in `acc`: padded_value(), because kMaxHeadDim would map queries to few sets of the cache.
  size_t stride = 0;
  alignas(64) Numbers q[kMaxHeadDim / kAttentionChunk];
  alignas(64) float acc[kMaxTileQueries * kMaxHeadDim];
  alignas(64) float scores[kMaxTileQueries][kAttentionBlock];
  alignas(64) Numbers weights[kAttentionBlock / kAttentionChunk];
  alignas(64) float sums[kMaxTileQueries][kLanes];
  float max[kMaxTileQueries];
  int first[kMaxTileQueries], end[kMaxTileQueries];  // tokens of this split
};

// Scales the scores of a block and applies a soft cap and a slope to them.
[[gnu::noinline]] void adjust_scores(const AttentionArgs& a, int head, int position, int block, float* scores) {
  const Floats16 scale = Floats16::all(a.scale), cap = Floats16::all(a.soft_cap),
                 slope = Floats16::all(a.slopes ? a.slopes[head] : 0.0f);
  alignas(64) static constexpr float kOrder[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int t = 0; t < kAttentionBlock; t += kLanes) {
    Floats16 score = mul(Floats16::load(scores + t), scale);
    if (a.soft_cap != 0) score = soft_cap(score, cap);
    if (a.slopes) {
      const Floats16 distance =
          abs(add(Floats16::load(kOrder), Floats16::all(static_cast<float>(block + t - position))));
      score = fma(slope, negative(distance), score);
    }
    store(scores + t, score);
  }
}

// The pages of a block.
inline constexpr int kBlockPages = kAttentionBlock / kPageTokens;

// The scales of a page's keys, and those of its values. scales: where the page has them.
template <KvType kType>
QUIRE_INLINE Floats16 key_scales(const std::byte* scales) {
  if constexpr (kType == KvType::kInt8) return Floats16::load(reinterpret_cast<const float*>(scales));
  return load_bf16(reinterpret_cast<const uint16_t*>(scales));
}
template <KvType kType>
QUIRE_INLINE Floats16 value_scales(const std::byte* scales) {
  return key_scales<kType>(scales + kPageTokens * kv_scale_bytes(kType));
}

// A query's products with the keys of a page, from the sums of its codes. int4: keys are differences to the mean of those
// before them, whose product is a sum over lower lanes.
template <KvType kType>
QUIRE_INLINE Floats16 scaled_scores(Floats16 sums, const std::byte* scales) {
  const Floats16 own = mul(sums, key_scales<kType>(scales));
  if constexpr (kType != KvType::kInt4) return own;
  Floats16 means = mul(own, Floats16::load(kMeanShares));
  means = add(means, raise_lanes<1>(means));
  means = add(means, raise_lanes<2>(means));
  means = add(means, raise_lanes<4>(means));
  means = add(means, raise_lanes<8>(means));
  return add(own, raise_lanes<1>(means));
}
// Those of pages [begin, end) of a block.
template <KvType kType>
QUIRE_INLINE void scale_scores(float* scores, const std::byte* const* scales, int begin, int end) {
  for (int p = begin; p < end; ++p) {
    float* of_page = scores + p * kPageTokens;
    store(of_page, scaled_scores<kType>(Floats16::load(of_page), scales[p]));
  }
}

// Turns a query's scores into weights; those of tokens outside [from, to) of the block are 0. scales: those of each page
// of the block, for a cache of codes.
template <KvType kType, class Unit>
void weigh(Queries& s, int query, int from, int to, float scale, const std::byte* const* scales) {
  constexpr int kGroups = kAttentionBlock / kLanes;
  constexpr bool kBf16 = multiplies_bf16(kType);
  const float* scores = s.scores[query];
  if (from >= kAttentionBlock || to <= 0 || from >= to) {
    for (Numbers& chunk : s.weights) __builtin_memset(chunk[query], 0, sizeof chunk[query]);
    return;
  }
  const Floats16 none = Floats16::all(minus_infinity());
  const bool all = from <= 0 && to >= kAttentionBlock;
  Floats16 x[kGroups], largest = none;
  QUIRE_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    x[g] = mul(Floats16::load(scores + g * kLanes), Floats16::all(scale));
    if (!all) x[g] = within(x[g], none, from - g * kLanes, to - g * kLanes);
    largest = max(x[g], largest);  // a NaN score has weight 0
  }
  Floats16 sums = Floats16::load(s.sums[query]);
  const float top = max_lanes(largest);
  if (top > s.max[query]) {
    const Floats16 correction = exp(Floats16::all(s.max[query] - top));
    sums = mul(sums, correction);
    float* acc = s.acc + static_cast<size_t>(query) * s.stride;
    for (size_t d = 0; d < s.stride; d += kLanes) {
      store(acc + d, without_small(mul(Floats16::load(acc + d), correction), Floats16::all(kSmallestSum)));
    }
    s.max[query] = top;
  }
  const Floats16 m = Floats16::all(s.max[query]);
  QUIRE_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    x[g] = kBf16 ? weight<kType == KvType::kBf16>(sub(x[g], m)) : exp(sub(x[g], m));
    if (!kBf16) store(s.weights[g / 2][query] + g % 2 * kLanes, x[g]);
    sums = add(sums, x[g]);
    if (!has_codes(kType)) continue;
    x[g] = to_bf16(mul(x[g], value_scales<kType>(scales[g])));
    // Scales of tokens that are not seen may be NaN.
    if (!all) x[g] = within(x[g], Floats16::all(0.0f), from - g * kLanes, to - g * kLanes);
  }
  QUIRE_UNROLL
  for (int g = 0; g < kGroups && kBf16; g += 2) Unit::put_bf16(x[g], x[g + 1], s.weights[g / 2][query]);
  store(s.sums[query], sums);
}

// The end of the tokens that row r of a tile sees.
QUIRE_INLINE int tokens_end(const AttentionArgs& a, const AttentionTile& t, int r) {
  const int position = t.position + r;
  if (a.causal) return position + 1;
  return a.window > 0 && position + a.window < t.end ? position + a.window : t.end;
}

// The pages [first, end) of one KV head of one sequence that a tile reads.
struct Cache {
  const std::byte* data;
  size_t page_stride;
  const int32_t* pages;
  int first, end;

  Cache(const AttentionArgs& a, const AttentionTile& t)
      : data(a.kv->data + static_cast<size_t>(t.head / (a.heads / a.kv->kv_heads)) * a.kv->head_stride),
        page_stride(a.kv->page_stride),
        pages(t.pages),
        first(a.window > 0 && t.position >= a.window ? (t.position + 1 - a.window) / kPageTokens : 0),
        end((tokens_end(a, t, t.rows - 1) + kPageTokens - 1) / kPageTokens) {}
  const std::byte* page(int index) const { return data + static_cast<size_t>(pages[index]) * page_stride; }
};

// A tile's pages, followed by those of the next tile.
struct Pages {
  Cache tile, next;  // next: the same tile if there is no next

  Pages(const AttentionArgs& a, const AttentionTile& t) : tile(a, t), next(a, t.next ? *t.next : t) {}
  const std::byte* page(int index) const {
    if (index < tile.end) return tile.page(index);
    const int in_next = next.first + index - tile.end;
    return next.page(in_next < next.end ? in_next : next.end - 1);
  }
};

// One split of all queries: tokens first[i] .. end[i] of query i.
template <KvType kType, class Unit>
void attend_split(const AttentionArgs& a, const AttentionTile& tile, const Pages& kv, Queries& s, Unit& unit) {
  constexpr auto bytes = [](size_t numbers) { return kv_bytes(kType, numbers); };
  constexpr int kMostColumns = kMaxHeadDim / kLanes;
  const auto padded_key = static_cast<size_t>(a.kv->padded_key());
  const size_t padded = s.stride, keys = a.kv->values_offset(), scales_at = a.kv->scales_offset();
  const size_t value_line = bytes(has_codes(kType) ? kLanes : padded);  // bytes of one token's values
  const bool adjusted = a.soft_cap != 0 || a.slopes;                    // adjust_scores() then scales
  const float scale = adjusted ? 1.0f : a.scale;
  int first = INT32_MAX, end = 0;
  for (int i = 0; i < s.count; ++i) {
    s.max[i] = minus_infinity();
    __builtin_memset(s.sums[i], 0, sizeof s.sums[i]);
    if (s.first[i] >= s.end[i]) continue;
    first = s.first[i] < first ? s.first[i] : first;
    end = s.end[i] > end ? s.end[i] : end;
  }
  __builtin_memset(s.acc, 0, sizeof(float) * static_cast<size_t>(s.count) * padded);

  for (int block = first / kAttentionBlock * kAttentionBlock; block < end; block += kAttentionBlock) {
    const int begin = first > block ? first : block,
              stop = end < block + kAttentionBlock ? end : block + kAttentionBlock;
    // The pages of this block that are needed, and the distance from each to the page one block later.
    const int page_begin = begin / kPageTokens, page_end = (stop + kPageTokens - 1) / kPageTokens,
              block_page = block / kPageTokens;
    const std::byte* const any = kv.tile.data;
    const std::byte* page[kBlockPages] = {any, any, any, any};
    ptrdiff_t ahead[kBlockPages] = {};
    for (int p = page_begin; p < page_end; ++p) {
      page[p - block_page] = kv.page(p);
      ahead[p - block_page] = kv.page(p + kBlockPages) - kv.page(p);
    }
    const std::byte* scales[kBlockPages] = {};
    if (has_codes(kType)) {
      constexpr size_t kScaleBytes = 2 * kPageTokens * kv_scale_bytes(kType);
      for (int p = 0; p < kBlockPages; ++p) {
        scales[p] = page[p] + scales_at;
        for (size_t line = 0; line < kScaleBytes; line += 64) __builtin_prefetch(scales[p] + ahead[p] + line);
      }
    }

    Column columns[kMostColumns];
    for (size_t d = 0; d < padded_key; d += kAttentionChunk) {
      for (int p = page_begin; p < page_end; ++p) {
        const std::byte* at = page[p - block_page] + bytes(d * kPageTokens);
        columns[p - page_begin] = {{at, at + bytes(kPageTokens * kPageTokens)},
                                   {ahead[p - block_page], ahead[p - block_page]}};
      }
      const Chunk chunk{columns,
                        {16, padded_key - d > 16 ? 16 : 0},
                        bytes(2 * kPageTokens),
                        bytes(kPageTokens),
                        &s.q[d / kAttentionChunk],
                        s.scores[0] + (page_begin - block_page) * kPageTokens,
                        kAttentionBlock,
                        d == 0};
      unit.template add<kType>(chunk, s.count, page_end - page_begin);
    }

    if constexpr (has_codes(kType)) {
      for (int i = 0; i < s.count; ++i)
        scale_scores<kType>(s.scores[i], scales, page_begin - block_page, page_end - block_page);
    }
    if (adjusted) {
      for (int i = 0; i < s.count; ++i)
        adjust_scores(a, tile.head + i % tile.heads, tile.position + i / tile.heads, block, s.scores[i]);
    }
    for (int i = 0; i < s.count; ++i) weigh<kType, Unit>(s, i, s.first[i] - block, s.end[i] - block, scale, scales);

    const auto tokens_of = [&](int p) {  // tokens of the page that some query sees
      const int tokens = stop - (block_page + p) * kPageTokens;
      if (block_page + p < page_begin || tokens <= 0) return 0;
      // Any code times a weight of 0 is 0, so a page of codes is read whole.
      return tokens < kPageTokens && !has_codes(kType) ? tokens : kPageTokens;
    };
    for (int p = 0; p < kBlockPages; p += 2) {
      const int elements[2] = {tokens_of(p), tokens_of(p + 1)};
      if (elements[0] + elements[1] == 0) continue;
      for (size_t d = 0; d < padded; d += kLanes) {
        Column& column = columns[d / kLanes];
        for (int place = 0; place < 2; ++place) {
          // bf16, codes: lines of 16 dimensions for one, two or eight tokens, those of a column contiguous
          column.at[place] = page[p + place] + keys + bytes(multiplies_bf16(kType) ? d * kPageTokens : d);
          column.ahead[place] = ahead[p + place];
        }
      }
      const Chunk chunk{
          columns, {elements[0], elements[1]}, 2 * value_line, value_line, &s.weights[p / 2], s.acc, s.stride, false};
      unit.template add<kType>(chunk, s.count, static_cast<int>(padded / kLanes));
    }
  }
}

// Merges the next split into max, sum and acc.
void absorb(float& max, float& sum, float* acc, float next_max, float next_sum, const float* next, size_t padded) {
  if (next_max == minus_infinity()) return;
  const float top = next_max > max ? next_max : max;
  alignas(64) float factors[kLanes] = {max - top, next_max - top};
  store(factors, exp(Floats16::load(factors)));
  const Floats16 a = Floats16::all(factors[0]), b = Floats16::all(factors[1]);
  for (size_t d = 0; d < padded; d += kLanes)
    store(acc + d, fma(Floats16::load(acc + d), a, mul(Floats16::load(next + d), b)));
  sum = __builtin_fmaf(sum, factors[0], next_sum * factors[1]);
  max = top;
}

// Absorbs the sink, if there is one, and writes the result.
void finish(const AttentionArgs& a, int row, int head, float max, float sum, float* acc) {
  const int dim = a.kv->value_dim;
  if (a.sinks) {
    alignas(64) float nothing[kMaxHeadDim];
    const auto padded = static_cast<size_t>(a.kv->padded_value());
    __builtin_memset(nothing, 0, sizeof(float) * padded);
    absorb(max, sum, acc, a.sinks[head], 1.0f, nothing, padded);
  }
  float* out = a.out + static_cast<size_t>(row) * a.out_stride + static_cast<size_t>(head * dim);
  if (rotates_heads(a.kv->type)) {
    for (int d = 0; d < dim; d += kLanes) store(acc + d, div(Floats16::load(acc + d), Floats16::all(sum)));
    rotate_head_back(acc, dim);
    __builtin_memcpy(out, acc, sizeof(float) * static_cast<size_t>(dim));
    return;
  }
  int d = 0;
  for (; d + kLanes <= dim; d += kLanes) store(out + d, div(Floats16::load(acc + d), Floats16::all(sum)));
  for (; d < dim; ++d) out[d] = acc[d] / sum;
}

// The numbers of a query that multiply keys: rotated if keys are, and with zeros to the end of the last chunk. to: has room
// for kMaxHeadDim. For types that multiply bf16, they are not yet rounded.
void load_query(const AttentionArgs& a, int row, int head, float* to) {
  const int dim = a.kv->key_dim, end = (dim + kAttentionChunk - 1) / kAttentionChunk * kAttentionChunk;
  const float* q = a.q + static_cast<size_t>(row) * a.q_stride + static_cast<size_t>(head * dim);
  __builtin_memcpy(to, q, sizeof(float) * static_cast<size_t>(dim));
  __builtin_memset(to + dim, 0, sizeof(float) * static_cast<size_t>(end - dim));
  if (rotates_heads(a.kv->type)) rotate_head(to, dim);
}

template <class Unit>
void attend(const AttentionArgs& a, const AttentionTile& tile, Unit& unit) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.key_dim;
  const auto padded = static_cast<size_t>(kv.padded_value());
  const Pages pages(a, tile);
  Queries s;
  s.count = tile.rows * tile.heads;
  s.stride = padded;
  const auto row_of = [&](int i) { return tile.row + i / tile.heads; };
  const auto head_of = [&](int i) { return tile.head + i % tile.heads; };
  for (int i = 0; i < s.count; ++i) {
    alignas(64) float q[kMaxHeadDim];
    load_query(a, row_of(i), head_of(i), q);
    for (int d = 0; d < dim; d += kAttentionChunk) {
      float* chunk = s.q[d / kAttentionChunk][i];
      __builtin_memcpy(chunk, q + d, sizeof(float) * kAttentionChunk);
      if (multiplies_bf16(kv.type))
        Unit::put_bf16(round_bf16(Floats16::load(chunk)), round_bf16(Floats16::load(chunk + kLanes)), chunk);
    }
  }
  alignas(64) float totals[kMaxTileQueries * kMaxHeadDim];
  float max[kMaxTileQueries], sum[kMaxTileQueries];
  for (int i = 0; i < s.count; ++i) {
    max[i] = minus_infinity();
    sum[i] = 0;
  }
  __builtin_memset(totals, 0, sizeof(float) * static_cast<size_t>(s.count) * padded);
  for (int split = tile.split_begin; split < tile.split_end; ++split) {
    for (int i = 0; i < s.count; ++i) {
      const int end = tokens_end(a, tile, i / tile.heads), next = tile.position + i / tile.heads + 1,
                window = a.window > 0 && next > a.window ? next - a.window : 0;
      const int split_first = split * kAttentionSplit, split_end = split_first + kAttentionSplit;
      s.first[i] = window > split_first ? window : split_first;
      s.end[i] = end < split_end ? end : split_end;
    }
    switch (kv.type) {
      case KvType::kF32:
        attend_split<KvType::kF32>(a, tile, pages, s, unit);
        break;
      case KvType::kF16:
        attend_split<KvType::kF16>(a, tile, pages, s, unit);
        break;
      case KvType::kBf16:
        attend_split<KvType::kBf16>(a, tile, pages, s, unit);
        break;
      case KvType::kInt8:
        attend_split<KvType::kInt8>(a, tile, pages, s, unit);
        break;
      case KvType::kInt4:
        attend_split<KvType::kInt4>(a, tile, pages, s, unit);
        break;
      case KvType::kFp8:
        attend_split<KvType::kFp8>(a, tile, pages, s, unit);
        break;
    }
    for (int i = 0; i < s.count; ++i) {
      const float* acc = s.acc + static_cast<size_t>(i) * padded;
      const float split_sum = sum_lanes(Floats16::load(s.sums[i]));
      if (tile.partial) {
        float* out = tile.partial + static_cast<size_t>(i) * (padded + 2);
        out[0] = s.max[i];
        out[1] = split_sum;
        __builtin_memcpy(out + 2, acc, sizeof(float) * padded);
      } else {
        absorb(max[i], sum[i], totals + static_cast<size_t>(i) * padded, s.max[i], split_sum, acc, padded);
      }
    }
  }
  for (int i = 0; i < s.count && !tile.partial; ++i)
    finish(a, row_of(i), head_of(i), max[i], sum[i], totals + static_cast<size_t>(i) * padded);
}

[[maybe_unused]] void attention(const AttentionArgs& a, const AttentionTile& tile) {
  VectorUnit unit;
  attend(a, tile, unit);
}

[[maybe_unused]] void merge(const AttentionArgs& a, const AttentionMerge& m) {
  const auto padded = static_cast<size_t>(a.kv->padded_value());
  for (int i = 0; i < m.rows * m.heads; ++i) {
    alignas(64) float acc[kMaxHeadDim];
    __builtin_memset(acc, 0, sizeof(float) * padded);
    float max = minus_infinity(), sum = 0;
    for (int split = 0; split < m.splits; ++split) {
      const float* part =
          m.partials + static_cast<size_t>(split) * m.split_stride + static_cast<size_t>(i) * (padded + 2);
      absorb(max, sum, acc, part[0], part[1], part + 2, padded);
    }
    finish(a, m.row + i / m.heads, m.head + i % m.heads, max, sum, acc);
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
