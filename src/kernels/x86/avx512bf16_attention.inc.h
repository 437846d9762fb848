// Attention over a cache of bf16 or codes with VDPBF16PS, which computes two links of a chain (see linear_float.inc.h): of
// every four elements, the first and third share a dword, and so do the second and fourth.
#pragma once

#include "kernels/vector/attention.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// 32 bf16 numbers as links: dword 2i holds numbers 4i (upper half) and 4i + 2, dword 2i + 1 numbers 4i + 1 and 4i + 3.
QUIRE_INLINE Ints16 links(Floats16 x0, Floats16 x1) {
  const Ints16 first = {_mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29)};
  const auto pick = [&](Ints16 numbers) __attribute__((always_inline)) {
    return Ints16{_mm512_permutex2var_epi32(bits(x0).v, numbers.v, bits(x1).v)};
  };
  return bor(pick(first), shift_right<16>(pick(add(first, Ints16::all(2)))));
}

// Two lines of the cache hold elements (0, 1) and (2, 3), the first in the lower half.
QUIRE_INLINE Ints16 even_links(Ints16 a, Ints16 b) {
  return {_mm512_mask_blend_epi16(0x55555555, shift_left<16>(a).v, b.v)};
}
QUIRE_INLINE Ints16 odd_links(Ints16 a, Ints16 b) {
  return {_mm512_mask_blend_epi16(0x55555555, a.v, shift_right<16>(b).v)};
}
QUIRE_INLINE Floats16 add_links(Ints16 x, Ints16 line, Floats16 sum) {
  return {_mm512_dpbf16_ps(sum.v, (__m512bh)x.v, (__m512bh)line.v)};
}

// The links of the four elements at p.
template <KvType kType>
QUIRE_INLINE Ints16 whole_even(const std::byte* p) {
  if constexpr (has_codes(kType)) return upper_halves(bits(codes<kType>(p)), bits(codes<kType>(p + 32)));
  return even_links(Ints16::load(p), Ints16::load(p + 64));
}
template <KvType kType>
QUIRE_INLINE Ints16 whole_odd(const std::byte* p) {
  if constexpr (has_codes(kType)) return upper_halves(bits(codes<kType>(p + 16)), bits(codes<kType>(p + 48)));
  return odd_links(Ints16::load(p), Ints16::load(p + 64));
}

// Int4: two of the four pairs of eight elements at p, whose codes begin at bit kShift of both halves of a lane.
template <int kShift>
QUIRE_INLINE Ints16 int4_links(const std::byte* p) {
  return look_up_words(Ints16::load(kInt4Words.data()), shift_right<kShift>(Ints16::load(p)));
}

// As add_products(). kWhole: 16 elements in both places, a compile-time constant.
template <KvType kType, bool kWhole, int kQueries, int kColumns>
[[gnu::noinline]] void add_linked(const Chunk& c, int column, int query) {
  constexpr auto kFour = static_cast<int>(kv_bytes(kType, 4 * kLanes));  // bytes of four elements
  Floats16 even[kQueries][kColumns], odd[kQueries][kColumns];
  QUIRE_UNROLL
  for (int q = 0; q < kQueries; ++q) {
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) even[q][i] = odd[q][i] = Floats16::all(0.0f);
  }
  QUIRE_UNROLL
  for (int place = 0; place < 2; ++place) {
    const int elements = kWhole ? kPageTokens : c.elements[place];
    const std::byte* at[kColumns];
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) at[i] = c.columns[column + i].at[place];
    const float* numbers = (*c.numbers)[query] + place * 8;
    if (query == 0) {  // once for all queries
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        const std::byte* next = at[i] + c.columns[column + i].ahead[place];
        QUIRE_UNROLL
        for (int line = 0; line < kPageTokens / 4 * kFour; line += 64) __builtin_prefetch(next + line);
      }
    }
    // even_of and odd_of give the links of the four elements at a place.
    const auto step = [&](int link, const auto& even_of, const auto& odd_of) __attribute__((always_inline)) {
      Ints16 line[kColumns];
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) line[i] = even_of(at[i]);
      QUIRE_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Ints16 x = bits(Floats16::all(numbers[q * kAttentionChunk + link]));
        QUIRE_UNROLL
        for (int i = 0; i < kColumns; ++i) even[q][i] = add_links(x, line[i], even[q][i]);
      }
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) line[i] = odd_of(at[i]);
      QUIRE_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Ints16 x = bits(Floats16::all(numbers[q * kAttentionChunk + link + 1]));
        QUIRE_UNROLL
        for (int i = 0; i < kColumns; ++i) odd[q][i] = add_links(x, line[i], odd[q][i]);
      }
    };
    int link = 0;
    QUIRE_UNROLL
    for (; kType == KvType::kInt4 && 2 * link + 8 <= elements; link += 4) {
      step(
          link, [](const std::byte* p) __attribute__((always_inline)) { return int4_links<0>(p); },
          [](const std::byte* p) __attribute__((always_inline)) { return int4_links<4>(p); });
      step(
          link + 2, [](const std::byte* p) __attribute__((always_inline)) { return int4_links<8>(p); },
          [](const std::byte* p) __attribute__((always_inline)) { return int4_links<12>(p); });
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) at[i] += 2 * kFour;
    }
    QUIRE_UNROLL
    for (; kType != KvType::kInt4 && 2 * link + 4 <= elements; link += 2) {
      step(
          link, [](const std::byte* p) __attribute__((always_inline)) { return whole_even<kType>(p); },
          [](const std::byte* p) __attribute__((always_inline)) { return whole_odd<kType>(p); });
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) at[i] += kFour;
    }
    // Up to three elements of bf16 remain; the slots of missing ones may hold anything.
    if (const int left = elements % 4; kType == KvType::kBf16 && left != 0) {
      const __mmask32 a = left == 1 ? 0x55555555 : 0xffffffff, b = left == 3 ? 0x55555555 : 0;
      const auto load = [](__mmask32 mask, const std::byte* p) __attribute__((always_inline)) {
        return Ints16{_mm512_maskz_loadu_epi16(mask, p)};
      };
      step(
          link,
          [&](const std::byte* p) __attribute__((always_inline)) { return even_links(load(a, p), load(b, p + 64)); },
          [&](const std::byte* p) __attribute__((always_inline)) { return odd_links(load(a, p), load(b, p + 64)); });
    }
  }
  float* sums = c.sums + static_cast<size_t>(query) * c.sums_stride + column * kLanes;
  const __mmask16 kept = c.fresh ? 0 : 0xffff;
  QUIRE_UNROLL
  for (int q = 0; q < kQueries; ++q, sums += c.sums_stride) {
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const Floats16 so_far = {_mm512_maskz_loadu_ps(kept, sums + i * kLanes)};
      store(sums + i * kLanes, add(so_far, add(even[q][i], odd[q][i])));
    }
  }
}

struct PairUnit {
  template <KvType kType>
  void add(const Chunk& c, int queries, int columns) {
    if constexpr (!multiplies_bf16(kType)) {
      VectorUnit().add<kType>(c, queries, columns);
    } else {
      const bool whole = c.elements[0] == kPageTokens && c.elements[1] == kPageTokens;
      for_each_tile(
          queries, columns, [&]<int kQueries, int kColumns>(int column, int query) __attribute__((always_inline)) {
            if (whole) {
              add_linked<kType, true, kQueries, kColumns>(c, column, query);
            } else {
              add_linked<kType, false, kQueries, kColumns>(c, column, query);
            }
          });
    }
  }
  static void put_bf16(Floats16 x0, Floats16 x1, float* numbers) { _mm512_storeu_si512(numbers, links(x0, x1).v); }
};

void pair_attention(const AttentionArgs& a, const AttentionTile& tile) {
  PairUnit unit;
  attend(a, tile, unit);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
