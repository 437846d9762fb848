// Vectors of float and int32 lanes on AVX2 and AVX-512: the alphabet in which all x86 kernels are written.
//
//   Floats, Ints      one register: kWidth lanes (16 on AVX-512, 8 on AVX2). Linears use these: half a panel at a time
//                     is all that AVX2's 16 registers can hold.
//   Floats16, Ints16  16 lanes, a whole panel: one register on AVX-512, two on AVX2. Everything else uses these.
//
// Included by one file per instruction set, which defines QUIRE_ISA. Everything has internal linkage, so that no
// function compiled for AVX-512 can end up in a path that runs without it; the named namespace around it tells the sets
// apart in profilers and debuggers.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/lanes.h"

#define QUIRE_INLINE [[gnu::always_inline]] static inline
// gcc keeps arrays of registers in memory unless it unrolls the loops over them early.
#define QUIRE_UNROLL _Pragma("GCC unroll 8")

namespace quire::QUIRE_ISA {
namespace {

// Calls run.operator()<count>(), 1 <= count <= kMost: the number of rows of a tile becomes a compile-time constant.
template <int kMost, class Run>
QUIRE_INLINE void with_count(int count, const Run& run) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_count<kMost - 1>(count, run);
  }
  run.template operator()<kMost>();
}

// What the operations mean, where the name does not say it:
//   max, min              b if either is NaN
//   round                 to the nearest integer, ties to even
//   within(a, b, f, e)    a in lanes f <= i < e, else b
//   where_at_least(a,x,l) a where x >= l, else 0
//   choose(a, b, x, l)    a where x >= l, else b
//   lanes_at_least(x, l)  bit i: x >= l in lane i
//   without_small(a, l)   a, but 0 where |a| < l; NaN stays
//   where_number(a,b,x)   a where x is a number, b where it is NaN
//   to_int                rounds as round() does
//   bits                  the same bits as the other type
//   exchange_lanes<d>(a)  lane i has that of lane i ^ d; d: 1, 2, 4 or 8
//   raise_lanes<d>(a)     lane i has that of lane i - d, the first d have 0; d: 1, 2, 4 or 8
//   load_e4m3(p)          16 numbers E4M3 divided by 256, which are float16 with other places for their bits
#if defined(__AVX512F__)

inline constexpr int kWidth = 16;
struct Ints {  // or bytes
  __m512i v;
  QUIRE_INLINE Ints load(const void* p) { return {_mm512_loadu_si512(p)}; }
  QUIRE_INLINE Ints all(int32_t x) { return {_mm512_set1_epi32(x)}; }
};
struct Floats {
  __m512 v;
  QUIRE_INLINE Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
  QUIRE_INLINE Floats all(float x) { return {_mm512_set1_ps(x)}; }
  QUIRE_INLINE Floats of(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }
};
using Floats16 = Floats;
using Ints16 = Ints;

QUIRE_INLINE void store(float* p, Floats a) { _mm512_storeu_ps(p, a.v); }
QUIRE_INLINE void store(std::byte* p, Ints a) { _mm512_storeu_si512(p, a.v); }
QUIRE_INLINE Floats add(Floats a, Floats b) { return {_mm512_add_ps(a.v, b.v)}; }
QUIRE_INLINE Floats sub(Floats a, Floats b) { return {_mm512_sub_ps(a.v, b.v)}; }
QUIRE_INLINE Floats mul(Floats a, Floats b) { return {_mm512_mul_ps(a.v, b.v)}; }
QUIRE_INLINE Floats div(Floats a, Floats b) { return {_mm512_div_ps(a.v, b.v)}; }
QUIRE_INLINE Floats fma(Floats a, Floats b, Floats c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE Floats max(Floats a, Floats b) { return {_mm512_max_ps(a.v, b.v)}; }
QUIRE_INLINE Floats min(Floats a, Floats b) { return {_mm512_min_ps(a.v, b.v)}; }
QUIRE_INLINE Floats abs(Floats a) { return {_mm512_abs_ps(a.v)}; }
QUIRE_INLINE Floats negate(Floats a) { return {_mm512_sub_ps(_mm512_setzero_ps(), a.v)}; }
QUIRE_INLINE Floats round(Floats a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
QUIRE_INLINE Floats16 within(Floats16 a, Floats16 b, int first, int end) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __mmask16 in =
      _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(first)) & _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(end));
  return {_mm512_mask_blend_ps(in, b.v, a.v)};
}
QUIRE_INLINE Floats where_at_least(Floats a, Floats x, Floats limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), a.v)};
}
QUIRE_INLINE Floats choose(Floats a, Floats b, Floats x, Floats limit) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), b.v, a.v)};
}
QUIRE_INLINE uint32_t lanes_at_least(Floats x, Floats limit) { return _mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ); }
QUIRE_INLINE Floats without_small(Floats a, Floats limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(abs(a).v, limit.v, _CMP_NLT_UQ), a.v)};
}
QUIRE_INLINE Floats where_number(Floats a, Floats b, Floats x) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), a.v, b.v)};
}
QUIRE_INLINE Ints to_int(Floats a) { return {_mm512_cvtps_epi32(a.v)}; }
QUIRE_INLINE Floats bits(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
QUIRE_INLINE Ints bits(Floats a) { return {_mm512_castps_si512(a.v)}; }
QUIRE_INLINE Ints add(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints sub(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints max(Ints a, Ints b) { return {_mm512_max_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints band(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
QUIRE_INLINE Ints bor(Ints a, Ints b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kBits>
QUIRE_INLINE Ints shift_left(Ints a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
QUIRE_INLINE Ints shift_right(Ints a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
template <int kBits>
QUIRE_INLINE Ints shift_right_signed(Ints a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}

QUIRE_INLINE Ints shift_left(Ints a, uint32_t bits) {
  return {_mm512_sll_epi32(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
}
QUIRE_INLINE Ints shift_right(Ints a, uint32_t bits) {
  return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
}

QUIRE_INLINE Floats16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
QUIRE_INLINE Floats16 load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
QUIRE_INLINE Floats16 load_e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  // The sign fills the upper half: of its copies, one above the exponent goes.
  return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4001)))};
}
template <int kDistance>
QUIRE_INLINE Floats16 exchange_lanes(Floats16 a) {
  if constexpr (kDistance == 1) return {_mm512_permute_ps(a.v, 0xb1)};
  if constexpr (kDistance == 2) return {_mm512_permute_ps(a.v, 0x4e)};
  if constexpr (kDistance == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
}
template <int kDistance>
QUIRE_INLINE Floats16 raise_lanes(Floats16 a) {
  const __m512i raised = _mm512_alignr_epi32(_mm512_castps_si512(a.v), _mm512_setzero_si512(), 16 - kDistance);
  return {_mm512_castsi512_ps(raised)};
}
QUIRE_INLINE Ints16 load_int8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
// The lanes (in -128 .. 127) as 16 bytes.
QUIRE_INLINE __m128i to_bytes(Ints16 a) { return _mm512_cvtepi32_epi8(a.v); }
// The upper 16 bits of each lane: those of `a` stay, those of `b` come below them.
QUIRE_INLINE Ints16 upper_halves(Ints16 a, Ints16 b) {
  const __m512i down = _mm512_set4_epi32(0x0f0e, 0x0b0a, 0x0706, 0x0302);
  return {_mm512_mask_shuffle_epi8(a.v, 0x3333333333333333, b.v, down)};
}
QUIRE_INLINE __m256 low(Floats16 a) { return _mm512_castps512_ps256(a.v); }
QUIRE_INLINE __m256 high(Floats16 a) { return _mm512_extractf32x8_ps(a.v, 1); }

#else  // AVX2

inline constexpr int kWidth = 8;
struct Ints {  // or bytes
  __m256i v;
  QUIRE_INLINE Ints load(const void* p) { return {_mm256_loadu_si256(static_cast<const __m256i*>(p))}; }
  QUIRE_INLINE Ints all(int32_t x) { return {_mm256_set1_epi32(x)}; }
};
struct Floats {
  __m256 v;
  QUIRE_INLINE Floats load(const float* p) { return {_mm256_loadu_ps(p)}; }
  QUIRE_INLINE Floats all(float x) { return {_mm256_set1_ps(x)}; }
  QUIRE_INLINE Floats of(Ints a) { return {_mm256_cvtepi32_ps(a.v)}; }
};

QUIRE_INLINE void store(float* p, Floats a) { _mm256_storeu_ps(p, a.v); }
QUIRE_INLINE void store(std::byte* p, Ints a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v); }
QUIRE_INLINE Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.v, b.v)}; }
QUIRE_INLINE Floats sub(Floats a, Floats b) { return {_mm256_sub_ps(a.v, b.v)}; }
QUIRE_INLINE Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.v, b.v)}; }
QUIRE_INLINE Floats div(Floats a, Floats b) { return {_mm256_div_ps(a.v, b.v)}; }
QUIRE_INLINE Floats fma(Floats a, Floats b, Floats c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.v, b.v)}; }
QUIRE_INLINE Floats min(Floats a, Floats b) { return {_mm256_min_ps(a.v, b.v)}; }
QUIRE_INLINE Floats abs(Floats a) { return {_mm256_and_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)))}; }
QUIRE_INLINE Floats negate(Floats a) { return {_mm256_sub_ps(_mm256_setzero_ps(), a.v)}; }
QUIRE_INLINE Floats round(Floats a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
QUIRE_INLINE Floats where_at_least(Floats a, Floats x, Floats limit) {
  return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, limit.v, _CMP_GE_OQ))};
}
QUIRE_INLINE Floats choose(Floats a, Floats b, Floats x, Floats limit) {
  return {_mm256_blendv_ps(b.v, a.v, _mm256_cmp_ps(x.v, limit.v, _CMP_GE_OQ))};
}
QUIRE_INLINE uint32_t lanes_at_least(Floats x, Floats limit) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x.v, limit.v, _CMP_GE_OQ)));
}
QUIRE_INLINE Floats without_small(Floats a, Floats limit) {
  return {_mm256_and_ps(a.v, _mm256_cmp_ps(abs(a).v, limit.v, _CMP_NLT_UQ))};
}
QUIRE_INLINE Floats where_number(Floats a, Floats b, Floats x) {
  return {_mm256_blendv_ps(a.v, b.v, _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q))};
}
QUIRE_INLINE Ints to_int(Floats a) { return {_mm256_cvtps_epi32(a.v)}; }
QUIRE_INLINE Floats bits(Ints a) { return {_mm256_castsi256_ps(a.v)}; }
QUIRE_INLINE Ints bits(Floats a) { return {_mm256_castps_si256(a.v)}; }
QUIRE_INLINE Ints add(Ints a, Ints b) { return {_mm256_add_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints sub(Ints a, Ints b) { return {_mm256_sub_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints max(Ints a, Ints b) { return {_mm256_max_epi32(a.v, b.v)}; }
QUIRE_INLINE Ints band(Ints a, Ints b) { return {_mm256_and_si256(a.v, b.v)}; }
QUIRE_INLINE Ints bor(Ints a, Ints b) { return {_mm256_or_si256(a.v, b.v)}; }
template <int kBits>
QUIRE_INLINE Ints shift_left(Ints a) {
  return {_mm256_slli_epi32(a.v, kBits)};
}
template <int kBits>
QUIRE_INLINE Ints shift_right(Ints a) {
  return {_mm256_srli_epi32(a.v, kBits)};
}
template <int kBits>
QUIRE_INLINE Ints shift_right_signed(Ints a) {
  return {_mm256_srai_epi32(a.v, kBits)};
}

QUIRE_INLINE Ints shift_left(Ints a, uint32_t bits) {
  return {_mm256_sll_epi32(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
}
QUIRE_INLINE Ints shift_right(Ints a, uint32_t bits) {
  return {_mm256_srl_epi32(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
}

// 16 lanes: the same operations on both registers.
struct Ints16 {
  Ints lo, hi;
  QUIRE_INLINE Ints16 load(const void* p) { return {Ints::load(p), Ints::load(static_cast<const char*>(p) + 32)}; }
  QUIRE_INLINE Ints16 all(int32_t x) { return {Ints::all(x), Ints::all(x)}; }
};
struct Floats16 {
  Floats lo, hi;
  QUIRE_INLINE Floats16 load(const float* p) { return {Floats::load(p), Floats::load(p + 8)}; }
  QUIRE_INLINE Floats16 all(float x) { return {Floats::all(x), Floats::all(x)}; }
  QUIRE_INLINE Floats16 of(Ints16 a) { return {Floats::of(a.lo), Floats::of(a.hi)}; }
};
#define QUIRE_UNARY(result, f, type) \
  QUIRE_INLINE result f(type a) { return {f(a.lo), f(a.hi)}; }
#define QUIRE_BINARY(type, f) \
  QUIRE_INLINE type f(type a, type b) { return {f(a.lo, b.lo), f(a.hi, b.hi)}; }
#define QUIRE_TERNARY(f) \
  QUIRE_INLINE Floats16 f(Floats16 a, Floats16 b, Floats16 c) { return {f(a.lo, b.lo, c.lo), f(a.hi, b.hi, c.hi)}; }
QUIRE_BINARY(Floats16, add)
QUIRE_BINARY(Floats16, sub)
QUIRE_BINARY(Floats16, mul)
QUIRE_BINARY(Floats16, div)
QUIRE_BINARY(Floats16, max)
QUIRE_BINARY(Floats16, min)
QUIRE_BINARY(Floats16, without_small)
QUIRE_BINARY(Ints16, add)
QUIRE_BINARY(Ints16, max)
QUIRE_BINARY(Ints16, band)
QUIRE_BINARY(Ints16, bor)
QUIRE_TERNARY(fma)
QUIRE_TERNARY(where_at_least)
QUIRE_TERNARY(where_number)
QUIRE_UNARY(Floats16, abs, Floats16)
QUIRE_UNARY(Floats16, round, Floats16)
QUIRE_UNARY(Ints16, to_int, Floats16)
QUIRE_UNARY(Floats16, bits, Ints16)
QUIRE_UNARY(Ints16, bits, Floats16)
QUIRE_INLINE Floats16 choose(Floats16 a, Floats16 b, Floats16 x, Floats16 limit) {
  return {choose(a.lo, b.lo, x.lo, limit.lo), choose(a.hi, b.hi, x.hi, limit.hi)};
}
QUIRE_INLINE uint32_t lanes_at_least(Floats16 x, Floats16 limit) {
  return lanes_at_least(x.lo, limit.lo) | lanes_at_least(x.hi, limit.hi) << 8;
}
#undef QUIRE_UNARY
#undef QUIRE_BINARY
#undef QUIRE_TERNARY
template <int kBits>
QUIRE_INLINE Ints16 shift_left(Ints16 a) {
  return {shift_left<kBits>(a.lo), shift_left<kBits>(a.hi)};
}
template <int kBits>
QUIRE_INLINE Ints16 shift_right(Ints16 a) {
  return {shift_right<kBits>(a.lo), shift_right<kBits>(a.hi)};
}
QUIRE_INLINE void store(float* p, Floats16 a) { store(p, a.lo), store(p + 8, a.hi); }
QUIRE_INLINE Floats16 within(Floats16 a, Floats16 b, int first, int end) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
  const auto blend = [=](Floats x, Floats y, __m256i i) __attribute__((always_inline)) {
    const __m256i in = _mm256_and_si256(_mm256_cmpgt_epi32(i, _mm256_set1_epi32(first - 1)),
                                        _mm256_cmpgt_epi32(_mm256_set1_epi32(end), i));
    return Floats{_mm256_blendv_ps(y.v, x.v, _mm256_castsi256_ps(in))};
  };
  return {blend(a.lo, b.lo, lane), blend(a.hi, b.hi, _mm256_add_epi32(lane, eight))};
}
QUIRE_INLINE Floats16 load_f16(const uint16_t* p) {
  const auto eight = [](const uint16_t* at) __attribute__((always_inline)) {
    return Floats{_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
  };
  return {eight(p), eight(p + 8)};
}
QUIRE_INLINE Floats16 load_bf16(const uint16_t* p) {
  const auto eight = [](const uint16_t* at) __attribute__((always_inline)) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return Floats{_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  };
  return {eight(p), eight(p + 8)};
}
QUIRE_INLINE Floats16 load_e4m3(const uint8_t* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(-0x4001));
  return {Floats{_mm256_cvtph_ps(_mm256_castsi256_si128(halves))},
          Floats{_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))}};
}
template <int kDistance>
QUIRE_INLINE Floats16 exchange_lanes(Floats16 a) {
  const auto eight = [](__m256 x) __attribute__((always_inline)) {
    if constexpr (kDistance == 1) return Floats{_mm256_permute_ps(x, 0xb1)};
    if constexpr (kDistance == 2) return Floats{_mm256_permute_ps(x, 0x4e)};
    return Floats{_mm256_permute2f128_ps(x, x, 1)};
  };
  if constexpr (kDistance == 8) return {a.hi, a.lo};
  return {eight(a.lo.v), eight(a.hi.v)};
}
template <int kDistance>
QUIRE_INLINE Floats16 raise_lanes(Floats16 a) {
  if constexpr (kDistance == 8) return {Floats::all(0.0f), a.lo};
  // Lanes raised by 4, whose quarters alignr joins with those of the numbers.
  const __m256i lo = _mm256_castps_si256(a.lo.v), hi = _mm256_castps_si256(a.hi.v),
                lo4 = _mm256_permute2x128_si256(lo, lo, 0x08), hi4 = _mm256_permute2x128_si256(lo, hi, 0x21);
  constexpr int kBytes = (16 - 4 * kDistance) & 15;  // & 15: of the branch not taken
  if constexpr (kDistance == 4) return {Floats{_mm256_castsi256_ps(lo4)}, Floats{_mm256_castsi256_ps(hi4)}};
  return {Floats{_mm256_castsi256_ps(_mm256_alignr_epi8(lo, lo4, kBytes))},
          Floats{_mm256_castsi256_ps(_mm256_alignr_epi8(hi, hi4, kBytes))}};
}
QUIRE_INLINE Ints16 load_int8(const int8_t* p) {
  const auto eight = [](const int8_t* at) __attribute__((always_inline)) {
    return Ints{_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)))};
  };
  return {eight(p), eight(p + 8)};
}
QUIRE_INLINE __m128i to_bytes(Ints16 a) {
  // packs works within 128-bit halves: lanes 0-3 8-11 | 4-7 12-15, so the dwords come out as 0 2 1 3.
  const __m256i words = _mm256_packs_epi32(a.lo.v, a.hi.v);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0));
}
QUIRE_INLINE __m256 low(Floats16 a) { return a.lo.v; }
QUIRE_INLINE __m256 high(Floats16 a) { return a.hi.v; }

#endif

// Up to 16 floats; the other lanes are `rest`.
QUIRE_INLINE Floats16 load_part(const float* p, int count, float rest = 0.0f) {
  alignas(64) float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = i < count ? p[i] : rest;
  return Floats16::load(lanes);
}
QUIRE_INLINE void store_part(float* p, Floats16 a, int count) {
  alignas(64) float lanes[kLanes];
  store(lanes, a);
  for (int i = 0; i < count; ++i) p[i] = lanes[i];
}

// 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half: kernels/lanes.h.
template <class Op256, class Op128>
QUIRE_INLINE float reduce(Floats16 a, Op256 op256, Op128 op128) {
  const __m256 eight = op256(low(a), high(a));
  const __m128 four = op128(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = op128(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(op128(two, _mm_shuffle_ps(two, two, 1)));
}
QUIRE_INLINE float sum_lanes(Floats16 a) {
  return reduce(
      a, [](__m256 x, __m256 y) __attribute__((always_inline)) { return _mm256_add_ps(x, y); },
      [](__m128 x, __m128 y) __attribute__((always_inline)) { return _mm_add_ps(x, y); });
}
QUIRE_INLINE float max_lanes(Floats16 a) {
  return reduce(
      a, [](__m256 x, __m256 y) __attribute__((always_inline)) { return _mm256_max_ps(x, y); },
      [](__m128 x, __m128 y) __attribute__((always_inline)) { return _mm_max_ps(x, y); });
}
// The largest |x|, or a NaN if there is one: comparing the bits of magnitudes compares the magnitudes.
QUIRE_INLINE float largest_magnitude(Floats16 a, Floats16 b) {
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
  // psadbw adds eight unsigned bytes: each is made unsigned by adding 128.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80))), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
}

// bf16_to_f32(f32_to_bf16(x)), lane by lane.
QUIRE_INLINE Floats16 to_bf16(Floats16 x) {
  const auto truncate = [](Ints16 a) __attribute__((always_inline)) {
    return bits(shift_left<16>(shift_right<16>(a)));
  };
  const Ints16 raw = bits(x), odd = band(shift_right<16>(raw), Ints16::all(1));
  const Floats16 rounded = truncate(add(raw, add(odd, Ints16::all(0x7fff))));
  return where_number(rounded, truncate(bor(raw, Ints16::all(0x400000))), x);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
