// Sixteen float or int32 lanes on AVX2 (two registers) and AVX-512 (one): the small alphabet in
// which x86/rows.inc.h is written. Included by one file per instruction set; everything has internal linkage, so that
// no function compiled for AVX-512 can end up in a path that runs without it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes.h"

#define QUIRE_INLINE [[gnu::always_inline]] static inline
// gcc keeps arrays of registers in memory unless it unrolls the loops over them early.
#define QUIRE_UNROLL _Pragma("GCC unroll 8")

namespace quire {
namespace {

// run.operator()<count>(), for 1 <= count <= kMost: how many rows a tile has is known to the compiler.
template <int kMost, class Run>
QUIRE_INLINE void with_count(int count, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_count<kMost - 1>(count, run);
  }
  run.template operator()<kMost>();
}

#if defined(__AVX512F__)

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
QUIRE_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
QUIRE_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
QUIRE_INLINE F set1(float x) { return {_mm512_set1_ps(x)}; }
QUIRE_INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
QUIRE_INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
QUIRE_INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
QUIRE_INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
QUIRE_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }  // b if either is NaN
QUIRE_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
QUIRE_INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }
QUIRE_INLINE F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// a where lane `first <= i < end`, else b
QUIRE_INLINE F within(F a, F b, int first, int end) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 in =
      _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(first)) & _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
  return {_mm512_mask_blend_ps(in, b.v, a.v)};
}
// a where x >= limit, else 0
QUIRE_INLINE F where_at_least(F a, F x, F limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), a.v)};
}
// a, but 0 where |a| < limit: NaN stays
QUIRE_INLINE F without_small(F a, F limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(abs(a).v, limit.v, _CMP_NLT_UQ), a.v)};
}
QUIRE_INLINE I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
QUIRE_INLINE F bits(I a) { return {_mm512_castsi512_ps(a.v)}; }
QUIRE_INLINE I bits(F a) { return {_mm512_castps_si512(a.v)}; }
// a where x is a number, b where it is NaN
QUIRE_INLINE F where_number(F a, F b, F x) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), a.v, b.v)};
}
QUIRE_INLINE I set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
QUIRE_INLINE I zero_int() { return {_mm512_setzero_si512()}; }
QUIRE_INLINE I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
QUIRE_INLINE I max(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
QUIRE_INLINE I band(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
QUIRE_INLINE I bor(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kBits>
QUIRE_INLINE I shift_left(I a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
QUIRE_INLINE I shift_right(I a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
QUIRE_INLINE I load_int(const void* p) { return {_mm512_loadu_si512(p)}; }
QUIRE_INLINE F load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
// The lanes (in -128 .. 127) as 16 bytes.
QUIRE_INLINE __m128i to_bytes(I a) { return _mm512_cvtepi32_epi8(a.v); }
QUIRE_INLINE __m256 low(F a) { return _mm512_castps512_ps256(a.v); }
QUIRE_INLINE __m256 high(F a) { return _mm512_extractf32x8_ps(a.v, 1); }

#else  // AVX2

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
#define QUIRE_BOTH(f) \
  { f(a.lo, b.lo), f(a.hi, b.hi) }
QUIRE_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
QUIRE_INLINE void store(float* p, F a) { _mm256_storeu_ps(p, a.lo), _mm256_storeu_ps(p + 8, a.hi); }
QUIRE_INLINE F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
QUIRE_INLINE F add(F a, F b) { return QUIRE_BOTH(_mm256_add_ps); }
QUIRE_INLINE F sub(F a, F b) { return QUIRE_BOTH(_mm256_sub_ps); }
QUIRE_INLINE F mul(F a, F b) { return QUIRE_BOTH(_mm256_mul_ps); }
QUIRE_INLINE F div(F a, F b) { return QUIRE_BOTH(_mm256_div_ps); }
QUIRE_INLINE F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
QUIRE_INLINE F max(F a, F b) { return QUIRE_BOTH(_mm256_max_ps); }
QUIRE_INLINE F min(F a, F b) { return QUIRE_BOTH(_mm256_min_ps); }
QUIRE_INLINE F abs(F a) {
  const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(a.lo, m), _mm256_and_ps(a.hi, m)};
}
QUIRE_INLINE F round(F a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}
QUIRE_INLINE F within(F a, F b, int first, int end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
  const auto in = [=](__m256i i) __attribute__((always_inline)) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(i, _mm256_set1_epi32(first - 1)),
                                                _mm256_cmpgt_epi32(_mm256_set1_epi32(end), i)));
  };
  return {_mm256_blendv_ps(b.lo, a.lo, in(lane)), _mm256_blendv_ps(b.hi, a.hi, in(_mm256_add_epi32(lane, eight)))};
}
QUIRE_INLINE F where_at_least(F a, F x, F limit) {
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_GE_OQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_GE_OQ))};
}
QUIRE_INLINE F without_small(F a, F limit) {
  return {_mm256_and_ps(a.lo, _mm256_cmp_ps(abs(a).lo, limit.lo, _CMP_NLT_UQ)),
          _mm256_and_ps(a.hi, _mm256_cmp_ps(abs(a).hi, limit.hi, _CMP_NLT_UQ))};
}
QUIRE_INLINE I to_int(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
QUIRE_INLINE F bits(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
QUIRE_INLINE I bits(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
QUIRE_INLINE F where_number(F a, F b, F x) {
  return {_mm256_blendv_ps(a.lo, b.lo, _mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q)),
          _mm256_blendv_ps(a.hi, b.hi, _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q))};
}
QUIRE_INLINE I set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
QUIRE_INLINE I zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
QUIRE_INLINE I add(I a, I b) { return QUIRE_BOTH(_mm256_add_epi32); }
QUIRE_INLINE I max(I a, I b) { return QUIRE_BOTH(_mm256_max_epi32); }
QUIRE_INLINE I band(I a, I b) { return QUIRE_BOTH(_mm256_and_si256); }
QUIRE_INLINE I bor(I a, I b) { return QUIRE_BOTH(_mm256_or_si256); }
template <int kBits>
QUIRE_INLINE I shift_left(I a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
QUIRE_INLINE I shift_right(I a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
QUIRE_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
QUIRE_INLINE I load_int(const void* p) { return {load256(p), load256(static_cast<const char*>(p) + 32)}; }
QUIRE_INLINE F load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
QUIRE_INLINE __m128i to_bytes(I a) {
  // packs works within 128-bit halves: lanes 0-3 8-11 | 4-7 12-15, so the dwords come out as 0 2 1 3.
  const __m256i words = _mm256_packs_epi32(a.lo, a.hi);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0));
}
QUIRE_INLINE __m256 low(F a) { return a.lo; }
QUIRE_INLINE __m256 high(F a) { return a.hi; }

#undef QUIRE_BOTH

#endif

// 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half: kernels/lanes.h.
template <class Op256, class Op128>
QUIRE_INLINE float reduce(F a, Op256 op256, Op128 op128) {
  const __m256 eight = op256(low(a), high(a));
  const __m128 four = op128(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = op128(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(op128(two, _mm_shuffle_ps(two, two, 1)));
}
QUIRE_INLINE float sum_lanes(F a) {
  return reduce(
      a, [](__m256 x, __m256 y) __attribute__((always_inline)) { return _mm256_add_ps(x, y); },
      [](__m128 x, __m128 y) __attribute__((always_inline)) { return _mm_add_ps(x, y); });
}
QUIRE_INLINE float max_lanes(F a) {
  return reduce(
      a, [](__m256 x, __m256 y) __attribute__((always_inline)) { return _mm256_max_ps(x, y); },
      [](__m128 x, __m128 y) __attribute__((always_inline)) { return _mm_max_ps(x, y); });
}
// The largest |x|, or a NaN where there is one: magnitudes have the order of their bits.
QUIRE_INLINE float largest_magnitude(F a, F b) {
  return reduce(
      bits(max(bits(abs(a)), bits(abs(b)))), [](__m256 x, __m256 y) __attribute__((always_inline)) {
        return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(x), _mm256_castps_si256(y)));
      },
      [](__m128 x, __m128 y) __attribute__((always_inline)) {
        return _mm_castsi128_ps(_mm_max_epi32(_mm_castps_si128(x), _mm_castps_si128(y)));
      });
}

// The sum of 16 signed bytes.
QUIRE_INLINE int32_t sum_bytes(__m128i bytes) {
  // As unsigned bytes, 128 too large each: psadbw adds eight at a time.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80))), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

// bf16_to_f32(f32_to_bf16(x)), lane by lane.
QUIRE_INLINE F to_bf16(F x) {
  const auto truncate = [](I a) __attribute__((always_inline)) { return bits(shift_left<16>(shift_right<16>(a))); };
  const I raw = bits(x), odd = band(shift_right<16>(raw), set1(int32_t{1}));
  const F rounded = truncate(add(raw, add(odd, set1(int32_t{0x7fff}))));
  return where_number(rounded, truncate(bor(raw, set1(int32_t{0x400000}))), x);
}

// kernels/lanes.h: exp_lane, silu_lane.
QUIRE_INLINE F exp(F x) {
  namespace c = exp_constants;
  const F y = min(max(x, set1(c::kLowest)), set1(c::kHighest));
  const F n = round(mul(y, set1(c::kLog2E)));
  F r = fma(n, set1(-c::kLn2High), y);
  r = fma(n, set1(-c::kLn2Low), r);
  F p = set1(c::kPolynomial[0]);
  for (int i = 1; i < 6; ++i) p = fma(p, r, set1(c::kPolynomial[i]));
  const F e = add(fma(p, mul(r, r), r), set1(1.0f));
  const F power = bits(shift_left<23>(add(to_int(n), set1(int32_t{127}))));
  return where_at_least(mul(e, power), x, set1(c::kLowest));
}
QUIRE_INLINE F silu(F x) { return div(x, add(set1(1.0f), exp(sub(set1(0.0f), x)))); }

}  // namespace
}  // namespace quire
