// From the scores of a block to weights, for all queries of a tile: maxima, what their growth does to the sums, and
// the weights as bf16 inputs of a product. Vectors only; the products are in amx_attention.inc.h.
#pragma once

#include "kernels/x86/amx_attention_lines.inc.h"

namespace quire::QUIRE_ISA {
namespace {

using Scores = float[kMaxTileQueries][kAttentionBlock];
using Weights = uint16_t[kAttentionBlock / kAttentionChunk][kMaxTileQueries][kAttentionChunk];

// reduce() of 16 vectors at a time: lane i has the result of vector i. Takes the same pairs in the same order.
template <class Op>
QUIRE_INLINE Floats16 reduce_each(const float (&x)[kLanes][kLanes], Op op) {
  const auto load = [&](int i) __attribute__((always_inline)) { return Floats16::load(x[i]).v; };
  __m512 quarters[4];  // [i]: four lanes of each of the vectors i, i + 4, i + 8, i + 12
  QUIRE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const auto halves = [&](int a, int b) __attribute__((always_inline)) {
      return op(_mm512_shuffle_f32x4(load(a), load(b), 0x44), _mm512_shuffle_f32x4(load(a), load(b), 0xee));
    };
    const __m512 a = halves(i, i + 4), b = halves(i + 8, i + 12);
    quarters[i] = op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  const auto pairs = [&](__m512 a, __m512 b) __attribute__((always_inline)) {
    return op(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  };
  const __m512 a = pairs(quarters[0], quarters[1]), b = pairs(quarters[2], quarters[3]);
  return {op(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd))};
}
// sum_lanes() and max_lanes().
QUIRE_INLINE Floats16 sum_each(const float (&x)[kLanes][kLanes]) {
  return reduce_each(
      x, [](__m512 a, __m512 b) __attribute__((always_inline)) { return _mm512_add_ps(a, b); });
}
QUIRE_INLINE Floats16 max_each(const float (&x)[kLanes][kLanes]) {
  return reduce_each(
      x, [](__m512 a, __m512 b) __attribute__((always_inline)) { return _mm512_max_ps(a, b); });
}

// Calls run(i) for each bit i of a mask.
template <class Run>
QUIRE_INLINE void for_each_bit(uint32_t mask, const Run& run) {
  for (; mask != 0; mask &= mask - 1) run(__builtin_ctz(mask));
}

// Stores 32 numbers of bf16 precision in order.
QUIRE_INLINE void put_numbers(Floats16 x0, Floats16 x1, uint16_t* to) {
  // packus alternates between its operands, four numbers at a time.
  const __m512i in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
  const __m512i packed = _mm512_packus_epi32(shift_right<16>(bits(x0)).v, shift_right<16>(bits(x1)).v);
  _mm512_store_si512(to, _mm512_permutexvar_epi64(in_order, packed));
}

// The result of a split without its values; lane i is query i.
struct SplitSums {
  Floats16 top, sum;  // the largest score; of weights
};

// The maxima and sums of weights of a tile's queries after some blocks of a split. Those beyond `count` stay at
// -infinity and 0.
struct TileQueries {
  int count = 0;
  int first[kMaxTileQueries], end[kMaxTileQueries];  // the tokens that each sees
  alignas(64) float top[kLanes];                     // the largest score
  alignas(64) float sums[kLanes][kLanes];
  alignas(64) float largest[kLanes][kLanes];  // the largest of a block's scores
  alignas(64) float corrections[kLanes];      // for the queries whose maximum grew

  void clear() {
    store(top, Floats16::all(minus_infinity()));
    for (float(&lanes)[kLanes] : sums) store(lanes, Floats16::all(0.0f));
  }
  // The largest scores and the sums of weights, and forgets them.
  SplitSums end_split() {
    const SplitSums ended{Floats16::load(top), sum_each(sums)};
    clear();
    return ended;
  }
  bool all_see(const Block& block) const {
    // Later queries begin and end later.
    return first[count - 1] <= block.token && end[0] >= block.token + kAttentionBlock;
  }
};

// Fills s.largest. Scores are multiplied by the scales of their keys first, if there are any, and those of tokens that
// a query does not see become -infinity.
template <KvType kType, bool kScaled, bool kAll>
void find_largest(TileQueries& s, Scores& scores, const Block& block, size_t scales) {
  const Floats16 none = Floats16::all(minus_infinity());
  for (int i = 0; i < s.count; ++i) {
    Floats16 largest = none;
    QUIRE_UNROLL
    for (int p = 0; p < kBlockPages; ++p) {
      if (!kAll && p >= block.pages) break;
      float* at = scores[i] + p * kPageTokens;
      Floats16 x = Floats16::load(at);
      if constexpr (kScaled) x = scaled_scores<kType>(x, block.page[p] + scales);
      const int token = block.token + p * kPageTokens;
      if (!kAll) x = within(x, none, s.first[i] - token, s.end[i] - token);
      if (kScaled || !kAll) store(at, x);
      largest = max(x, largest);  // a NaN score has weight 0
    }
    store(s.largest[i], largest);
  }
}

// Raises the maxima to the largest scores, and scales the sums of weights of those that grew: the queries of the result.
// scale > 0, so the largest score is that of the largest product.
inline uint32_t grow(TileQueries& s, float scale) {
  const Floats16 before = Floats16::load(s.top), top = mul(max_each(s.largest), Floats16::all(scale));
  const __mmask16 grown = _mm512_cmp_ps_mask(top.v, before.v, _CMP_GT_OQ);
  if (grown == 0) return 0;
  store(s.top, Floats16{_mm512_mask_mov_ps(before.v, grown, top.v)});
  store(s.corrections, exp(sub(before, top)));
  for_each_bit(
      grown, [&](int i) __attribute__((always_inline)) {
        store(s.sums[i], mul(Floats16::load(s.sums[i]), Floats16::all(s.corrections[i])));
      });
  return grown;
}

// Calls between(i) before the weights of query i: it issues tile instructions, a few at a time, because many at once
// would fill the core's window of instructions in flight and keep it from the weights.
template <KvType kType, class Between>
void make_weights(TileQueries& s, const Scores& scores, Weights& weights, const Block& block, float scale,
                  size_t scales, const Between& between) {
  const bool all = s.all_see(block);
  with_count<kBlockPages>(
      block.pages, [&]<int kPages>() __attribute__((always_inline)) {
        constexpr int kChunks = (kPages + 1) / 2;
        for (int i = 0; i < s.count; ++i) {
          between(i);
          const Floats16 m = Floats16::all(s.top[i]), by = Floats16::all(scale);
          Floats16 sums = Floats16::load(s.sums[i]), x[2 * kChunks];
          x[2 * kChunks - 1] = Floats16::all(0.0f);
          QUIRE_UNROLL
          for (int p = 0; p < kPages; ++p) {
            x[p] = weight<kType == KvType::kBf16>(sub(mul(Floats16::load(scores[i] + p * kPageTokens), by), m));
            sums = add(sums, x[p]);
            if (!has_codes(kType)) continue;
            x[p] = to_bf16(mul(x[p], value_scales<kType>(block.page[p] + scales)));
            // Scales of tokens that are not seen may be NaN.
            const int token = block.token + p * kPageTokens;
            if (!all) x[p] = within(x[p], Floats16::all(0.0f), s.first[i] - token, s.end[i] - token);
          }
          store(s.sums[i], sums);
          QUIRE_UNROLL
          for (int c = 0; c < kChunks; ++c) put_numbers(x[2 * c], x[2 * c + 1], weights[c][i]);
        }
      });
}

// Scales the values of queries whose maximum grew.
inline void correct(const TileQueries& s, uint32_t grown, float* values, size_t stride) {
  for_each_bit(
      grown, [&](int i) __attribute__((always_inline)) {
        const Floats16 correction = Floats16::all(s.corrections[i]);
        float* of_query = values + static_cast<size_t>(i) * stride;
        for (size_t d = 0; d < stride; d += kLanes)
          store(of_query + d,
                without_small(mul(Floats16::load(of_query + d), correction), Floats16::all(kSmallestSum)));
      });
}

// Merges the next split into `total`: what absorb() does for one query, for all of them. Values are [query][stride].
inline void absorb_split(SplitSums& total, float* totals, const SplitSums& split, const float* values, int count,
                         size_t stride) {
  const Floats16 top = max(split.top, total.top), a = exp(sub(total.top, top)), b = exp(sub(split.top, top)),
                 sum = fma(total.sum, a, mul(split.sum, b));
  const __mmask16 seen = _mm512_cmp_ps_mask(split.top.v, _mm512_set1_ps(minus_infinity()), _CMP_NEQ_OQ);
  total = {top, {_mm512_mask_mov_ps(total.sum.v, seen, sum.v)}};
  alignas(64) float factors[2][kLanes];
  store(factors[0], a), store(factors[1], b);
  for_each_bit(
      seen & ((1u << count) - 1), [&](int i) __attribute__((always_inline)) {
        const Floats16 of_total = Floats16::all(factors[0][i]), of_split = Floats16::all(factors[1][i]);
        for (size_t at = static_cast<size_t>(i) * stride, end = at + stride; at < end; at += kLanes)
          store(totals + at, fma(Floats16::load(totals + at), of_total, mul(Floats16::load(values + at), of_split)));
      });
}

}  // namespace
}  // namespace quire::QUIRE_ISA
