// Packed codes in registers: unpacking bits, looking them up, multiplying bytes with activations.
#pragma once

#include "kernels/packed.h"
#include "kernels/x86/vector.h"

namespace quire::QUIRE_ISA {
namespace {

#if defined(__AVX512F__)

QUIRE_INLINE Ints low_nibbles(Ints a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
QUIRE_INLINE Ints high_nibbles(Ints a) { return low_nibbles(Ints{_mm512_srli_epi16(a.v, 4)}); }
QUIRE_INLINE Ints all_bytes(int x) { return {_mm512_set1_epi8(static_cast<char>(x))}; }
QUIRE_INLINE Ints add_bytes(Ints a, Ints b) { return {_mm512_add_epi8(a.v, b.v)}; }
QUIRE_INLINE Ints sub_bytes(Ints a, Ints b) { return {_mm512_sub_epi8(a.v, b.v)}; }
// Adds those bytes of b whose bit is set in the 64 bits at p.
QUIRE_INLINE Ints add_where(Ints a, Ints b, const std::byte* p) {
  uint64_t mask;
  __builtin_memcpy(&mask, p, sizeof mask);
  return {_mm512_mask_add_epi8(a.v, mask, a.v, b.v)};
}
// Bits kShift, kShift + 1 of each byte, moved to kTo, kTo + 1.
template <int kShift, int kTo>
QUIRE_INLINE Ints two_bits(Ints plane) {
  const __m512i moved = kShift < kTo ? _mm512_slli_epi16(plane.v, (kTo - kShift) & 15)  // & 15: of the branch not taken
                                     : _mm512_srli_epi16(plane.v, (kShift - kTo) & 15);
  return {_mm512_and_si512(moved, _mm512_set1_epi8(3 << kTo))};
}
// The bytes that 4-bit indices choose from the 16 of a table: each 16 bytes of the register have their own.
QUIRE_INLINE Ints look_up(Ints table, Ints indices) { return {_mm512_shuffle_epi8(table.v, indices.v)}; }
QUIRE_INLINE Ints repeat(__m128i bytes) { return {_mm512_broadcast_i32x4(bytes)}; }
// Of each index, the lowest 4 bits count.
QUIRE_INLINE Floats look_up(Floats16 table, Ints indices) { return {_mm512_permutexvar_ps(indices.v, table.v)}; }
// The words that the lowest 5 bits of each word choose from the 32 of a table.
QUIRE_INLINE Ints look_up_words(Ints table, Ints indices) { return {_mm512_permutexvar_epi16(indices.v, table.v)}; }
// Four bytes to floats. kByte: of each dword.
template <int kByte>
QUIRE_INLINE Floats e4m3_byte(Ints bytes) {  // f16's exponent is 8 above e4m3's
  const __m256i sixteen = _mm512_cvtepi32_epi16(_mm512_srli_epi32(bytes.v, 8 * kByte));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(sixteen, _mm256_set1_epi16(0x80)), 8),
                rest = _mm256_slli_epi16(_mm256_and_si256(sixteen, _mm256_set1_epi16(0x7f)), 7);
  return {_mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), _mm512_set1_ps(256.0f))};
}
QUIRE_INLINE Ints flip_signs(Ints bytes) { return {_mm512_xor_si512(bytes.v, _mm512_set1_epi8(-128))}; }
// At p, each output has four bits, one for each of its bytes: those of `byte`.
QUIRE_INLINE Ints bits_of_outputs(const std::byte* p, int byte) {
  int32_t words[2];
  __builtin_memcpy(words, p, sizeof words);
  const __m512i both = _mm512_inserti64x4(_mm512_set1_epi32(words[0]), _mm256_set1_epi32(words[1]), 1);
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i bit = _mm512_srlv_epi32(both, _mm512_add_epi32(first, _mm512_set1_epi32(byte)));
  return {_mm512_and_si512(bit, _mm512_set1_epi32(1))};
}

#else  // AVX2

QUIRE_INLINE Ints low_nibbles(Ints a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(15))}; }
QUIRE_INLINE Ints high_nibbles(Ints a) { return low_nibbles(Ints{_mm256_srli_epi16(a.v, 4)}); }
QUIRE_INLINE Ints all_bytes(int x) { return {_mm256_set1_epi8(static_cast<char>(x))}; }
QUIRE_INLINE Ints add_bytes(Ints a, Ints b) { return {_mm256_add_epi8(a.v, b.v)}; }
QUIRE_INLINE Ints sub_bytes(Ints a, Ints b) { return {_mm256_sub_epi8(a.v, b.v)}; }
// Adds those bytes of b whose bit is set in the 32 bits at p.
QUIRE_INLINE Ints add_where(Ints a, Ints b, const std::byte* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  const __m256i spread = _mm256_shuffle_epi8(
      _mm256_set1_epi32(word), _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  return {_mm256_add_epi8(a.v, _mm256_and_si256(set, b.v))};
}
template <int kShift, int kTo>
QUIRE_INLINE Ints two_bits(Ints plane) {
  const __m256i moved =
      kShift < kTo ? _mm256_slli_epi16(plane.v, (kTo - kShift) & 15) : _mm256_srli_epi16(plane.v, (kShift - kTo) & 15);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(3 << kTo))};
}
QUIRE_INLINE Ints look_up(Ints table, Ints indices) { return {_mm256_shuffle_epi8(table.v, indices.v)}; }
QUIRE_INLINE Ints repeat(__m128i bytes) { return {_mm256_broadcastsi128_si256(bytes)}; }
QUIRE_INLINE Floats look_up(Floats16 table, Ints indices) {  // the permutation reads three bits
  const __m256 low = _mm256_permutevar8x32_ps(table.lo.v, indices.v),
               high = _mm256_permutevar8x32_ps(table.hi.v, indices.v);
  return {_mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(indices.v, 28)))};
}
template <int kByte>
QUIRE_INLINE Floats e4m3_byte(Ints bytes) {
  const __m256i wide = _mm256_and_si256(_mm256_srli_epi32(bytes.v, 8 * kByte), _mm256_set1_epi32(255));
  const __m128i sixteen = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(sixteen, _mm_set1_epi16(0x80)), 8),
                rest = _mm_slli_epi16(_mm_and_si128(sixteen, _mm_set1_epi16(0x7f)), 7);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, rest)), _mm256_set1_ps(256.0f))};
}
QUIRE_INLINE Ints flip_signs(Ints bytes) { return {_mm256_xor_si256(bytes.v, _mm256_set1_epi8(-128))}; }
QUIRE_INLINE Ints bits_of_outputs(const std::byte* p, int byte) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  const __m256i first = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const __m256i bit = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_add_epi32(first, _mm256_set1_epi32(byte)));
  return {_mm256_and_si256(bit, _mm256_set1_epi32(1))};
}

// All 16 lanes.
QUIRE_INLINE Floats16 look_up(Floats16 table, Ints16 indices) {
  return {look_up(table, indices.lo), look_up(table, indices.hi)};
}

#endif

inline constexpr int kHalves = kPanel / kWidth;  // registers that a panel takes

// kWidth scales.
QUIRE_INLINE Floats scales_f16(const std::byte* p) {
#if defined(__AVX512F__)
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
#else
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#endif
}
QUIRE_INLINE Ints scales_u8(const std::byte* p) {
#if defined(__AVX512F__)
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#else
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
#endif
}
QUIRE_INLINE Ints integers_i8(const std::byte* p) {
#if defined(__AVX512F__)
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
#else
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
#endif
}
QUIRE_INLINE Floats scales_i8(const std::byte* p) { return Floats::of(integers_i8(p)); }

// Four activations in every lane.
QUIRE_INLINE Ints four_inputs(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, sizeof four);
  return Ints::all(four);
}

// Two integers of 16 bits in every lane, such as Int8Block::half_sums.
QUIRE_INLINE Ints all_pairs(const int16_t (&pair)[2]) {
  int32_t both;
  __builtin_memcpy(&both, pair, sizeof both);
  return Ints::all(both);
}
// The sum of the products of two such pairs, lane by lane.
QUIRE_INLINE Ints dot_pairs(Ints a, Ints b) {
#if defined(__AVX512F__)
  return {_mm512_madd_epi16(a.v, b.v)};
#else
  return {_mm256_madd_epi16(a.v, b.v)};
#endif
}

// Sums of products of weight bytes with activations, formed as is fastest on the instruction set. `Sums` accumulates;
// widen() must be called after every kLinesToWiden lines (of two registers) and makes the 32-bit sums.
#if defined(__AVX512F__) || defined(__AVXVNNI__) || defined(QUIRE_DOT_BYTES)

inline constexpr int kSignedOffset = 128;  // added to signed bytes, which the instruction wants unsigned
struct Sums {
  Ints wide;
};
QUIRE_INLINE Sums sums_from(Ints start) { return {start}; }
template <int kBits>
inline constexpr int kLinesToWiden = 4;
template <int kBits>
QUIRE_INLINE void multiply(Sums& s, Ints w, Ints x) {
#if defined(QUIRE_DOT_BYTES)  // tests emulate the instruction
  s.wide.v = QUIRE_DOT_BYTES(s.wide.v, w.v, x.v);
#elif defined(__AVX512F__)
  s.wide.v = _mm512_dpbusd_epi32(s.wide.v, w.v, x.v);
#else
  s.wide.v = _mm256_dpbusd_avx_epi32(s.wide.v, w.v, x.v);
#endif
}
template <int kBits>
QUIRE_INLINE void widen(Sums&) {}

#else

inline constexpr int kSignedOffset = 0;
struct Sums {
  Ints wide;
  Ints narrow;  // pairs of 16 bits
};
QUIRE_INLINE Sums sums_from(Ints start) { return {start, Ints::all(0)}; }
// As many products as fit into 16 bits:
//   4 bits  8 * 2 * 15 * 127 = 30,480
//   5 bits  4 * 2 * 31 * 127 = 31,496
//   6 bits  2 * 2 * 63 * 127 = 32,004
// kBits: 4, 5 or 6 of unsigned bytes, or 8 of signed ones.
template <int kBits>
inline constexpr int kLinesToWiden = kBits == 4   ? 4
                                     : kBits == 5 ? 2
                                                  : 1;
QUIRE_INLINE __m256i pairs_to_32(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
template <int kBits>
QUIRE_INLINE void multiply(Sums& s, Ints w, Ints x) {
  // gcc would delay the additions of a block and keep all products until then, more than there are registers.
  const auto in_order = [](Ints & sum) __attribute__((always_inline)) { asm("" : "+x"(sum.v)); };
  if constexpr (kBits == 8) {  // 128 * 127 * 2 = 32,512: |w| * (x with w's sign) does not saturate
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.v), _mm256_sign_epi8(x.v, w.v));
    s.wide.v = _mm256_add_epi32(s.wide.v, pairs_to_32(pairs));
    in_order(s.wide);
  } else {
    s.narrow.v = _mm256_add_epi16(s.narrow.v, _mm256_maddubs_epi16(w.v, x.v));
    in_order(s.narrow);
  }
}
template <int kBits>
QUIRE_INLINE void widen(Sums& s) {
  if constexpr (kBits == 8) return;
  s.wide.v = _mm256_add_epi32(s.wide.v, pairs_to_32(s.narrow.v));
  s.narrow = Ints::all(0);
}

#endif

}  // namespace
}  // namespace quire::QUIRE_ISA
