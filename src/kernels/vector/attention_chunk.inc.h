// The products of attention: a chunk of 32 elements of all queries of a tile.
//
// Scores and weighted values are one operation, add_products(): pairs of lines of 16 lanes times pairs of numbers of
// each query. For scores, lanes are tokens and the numbers are the query's; for values, lanes are dimensions and the
// numbers are weights. All queries of a tile share each line once it is loaded and widened.
#pragma once

#include <array>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"

namespace quire::QUIRE_ISA {
namespace {

#if defined(__AVX512F__)
// Queries that share a line, and lines processed together: 6 x 2 x (even, odd) chains leave 8 of 32 registers for
// lines, numbers and the mask. One or two queries use four lines, so that at least 8 chains hide the latency of an FMA.
inline constexpr int kMostQueries = 6;
constexpr int lines_beside(int queries) { return queries <= 2 ? 4 : 2; }
#else
// Of 16 half registers 3 x 1 x (even, odd) x 2 chains leave 4.
inline constexpr int kMostQueries = 3;
constexpr int lines_beside(int queries) { return queries == 1 ? 2 : 1; }
#endif

// The lines of one column of 16 lanes for a chunk of 32 elements: 16 in each of two places (in one page or two).
struct Column {
  const std::byte* at[2];
  ptrdiff_t ahead[2];  // from `at` to the same place one block later: the prefetch distance
};
// Each query's numbers for a chunk, at a fixed stride that fits into addressing modes. For a bf16 cache or one of codes, in
// the layout of the unit's put_bf16().
using Numbers = float[kMaxTileQueries][kAttentionChunk];
struct Chunk {
  const Column* columns;
  int elements[2];                 // in each place, at most 16; codes: 0 or 16
  size_t pair_stride, odd_offset;  // bytes; unused if pairs lie in one line: bf16, int4
  const Numbers* numbers;
  float* sums;  // 16 per column of each query
  size_t sums_stride;
  bool fresh;  // sums start at 0
};

// The numbers of the line of 16 codes of a byte at p as float32, whose upper halves are the same numbers as bf16.
template <KvType kType>
QUIRE_INLINE Floats16 codes(const std::byte* p) {
  if constexpr (kType == KvType::kFp8) return load_e4m3(reinterpret_cast<const uint8_t*>(p));
  return Floats16::of(load_int8(reinterpret_cast<const int8_t*>(p)));
}
// kInt4Numbers as bf16, twice: a look-up of words goes by the bit above a code, too.
alignas(64) inline constexpr auto kInt4Words = [] {
  std::array<uint16_t, 2 * kLanes> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = f32_to_bf16(kInt4Numbers[i % kInt4Numbers.size()]);
  return words;
}();
// The numbers of element i of eight at p, of 16 lanes.
template <int kElement>
QUIRE_INLINE Floats16 int4_line(const std::byte* p) {
  return look_up(Floats16::load(kInt4Numbers.data()), shift_right<int4_shift(kElement)>(Ints16::load(p)));
}

// The pairs of elements that share a line with int4: a step of add_products(). Other types take one pair a step.
template <KvType kType>
inline constexpr int kLinePairs = kType == KvType::kInt4 ? 4 : 1;

// The elements of pair kPair of a step.
template <KvType kType, int kPair>
QUIRE_INLINE Floats16 even_line(const std::byte* p) {
  if constexpr (kType == KvType::kF32) return Floats16::load(reinterpret_cast<const float*>(p));
  if constexpr (kType == KvType::kF16) return load_f16(reinterpret_cast<const uint16_t*>(p));
  if constexpr (kType == KvType::kInt8 || kType == KvType::kFp8) return codes<kType>(p);
  if constexpr (kType == KvType::kInt4) return int4_line<2 * kPair>(p);
  return bits(shift_left<16>(Ints16::load(p)));
}
template <KvType kType, int kPair>
QUIRE_INLINE Floats16 odd_line(const std::byte* p, size_t odd_offset) {
  if constexpr (kType == KvType::kBf16) return bits(band(Ints16::load(p), Ints16::all(-0x10000)));
  if constexpr (kType == KvType::kInt4) return int4_line<2 * kPair + 1>(p);
  return even_line<kType, kPair>(p + odd_offset);
}

template <KvType kType, int kQueries, int kColumns>
[[gnu::noinline]] void add_products(const Chunk& c, int column, int query) {
  Floats16 even[kQueries][kColumns], odd[kQueries][kColumns];
  QUIRE_UNROLL
  for (int q = 0; q < kQueries; ++q) {
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) even[q][i] = odd[q][i] = Floats16::all(0.0f);
  }
  constexpr int kPairs = kLinePairs<kType>;
  const size_t step_bytes = kType == KvType::kBf16 || kType == KvType::kInt4 ? 64
                            : has_codes(kType)                               ? 32
                                                                             : c.pair_stride;
  for (int place = 0; place < 2; ++place) {
    const std::byte* at[kColumns];
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) at[i] = c.columns[column + i].at[place];
    const float* numbers = (*c.numbers)[query] + place * 16;
    const float* const end = numbers + (c.elements[place] & ~1);
    const auto multiply_pair = [&]<int kPair>() __attribute__((always_inline)) {
      const float* x_of_pair = numbers + 2 * kPair;
      Floats16 line[kColumns];
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) line[i] = even_line<kType, kPair>(at[i]);
      QUIRE_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Floats16 x = Floats16::all(x_of_pair[q * kAttentionChunk]);
        QUIRE_UNROLL
        for (int i = 0; i < kColumns; ++i) even[q][i] = fma(x, line[i], even[q][i]);
      }
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) line[i] = odd_line<kType, kPair>(at[i], c.odd_offset);
      QUIRE_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Floats16 x = Floats16::all(x_of_pair[q * kAttentionChunk + 1]);
        QUIRE_UNROLL
        for (int i = 0; i < kColumns; ++i) odd[q][i] = fma(x, line[i], odd[q][i]);
      }
    };
    for (; numbers < end; numbers += 2 * kPairs) {
      multiply_pair.template operator()<0>();
      if constexpr (kPairs > 1) {
        multiply_pair.template operator()<1>();
        multiply_pair.template operator()<2>();
        multiply_pair.template operator()<3>();
      }
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        __builtin_prefetch(at[i] + c.columns[column + i].ahead[place]);
        at[i] += step_bytes;
      }
    }
    if (c.elements[place] % 2 != 0) {  // there is no odd element, and its slot may hold anything
      QUIRE_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        const Floats16 line = even_line<kType, 0>(at[i]);
        QUIRE_UNROLL
        for (int q = 0; q < kQueries; ++q)
          even[q][i] = fma(Floats16::all(numbers[q * kAttentionChunk]), line, even[q][i]);
      }
    }
  }
  QUIRE_UNROLL
  for (int q = 0; q < kQueries; ++q) {
    QUIRE_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      float* sums = c.sums + static_cast<size_t>(query + q) * c.sums_stride + (column + i) * kLanes;
      store(sums, add(c.fresh ? Floats16::all(0.0f) : Floats16::load(sums), add(even[q][i], odd[q][i])));
    }
  }
}

// multiply.operator()<kQueries, kColumns>(column, query) for all queries and columns of a chunk.
template <class Multiply>
QUIRE_INLINE void for_each_tile(int queries, int columns, const Multiply& multiply) {
  const auto run = [&]<int kQueries>(int query) __attribute__((always_inline)) {
    constexpr int kColumns = lines_beside(kQueries);
    int column = 0;
    for (; column + kColumns <= columns; column += kColumns)
      multiply.template operator()<kQueries, kColumns>(column, query);
    for (; column < columns; ++column) multiply.template operator()<kQueries, 1>(column, query);
  };
  // Runs of nearly equal size: 16 queries are 6 + 5 + 5.
  int runs = (queries + kMostQueries - 1) / kMostQueries;
  for (int query = 0; query < queries; --runs) {
    const int count = (queries - query + runs - 1) / runs;
    with_count<kMostQueries>(
        count, [&]<int kQueries>() __attribute__((always_inline)) { run.template operator()<kQueries>(query); });
    query += count;
  }
}

// Multiplies chunks by FMAs. Other units: VDPBF16PS (avx512bf16_attention.inc.h), matrix tiles (amx_attention.inc.h).
struct VectorUnit {
  // All queries and columns of a chunk.
  template <KvType kType>
  void add(const Chunk& c, int queries, int columns) {
    for_each_tile(
        queries, columns, [&]<int kQueries, int kColumns>(int column, int query) __attribute__((always_inline)) {
          add_products<kType, kQueries, kColumns>(c, column, query);
        });
  }
  // Stores the bf16 numbers of a chunk in the room of 32 floats. Zeros must be stored as zero bytes.
  static void put_bf16(Floats16 x0, Floats16 x1, float* numbers) { store(numbers, x0), store(numbers + kLanes, x1); }
};

}  // namespace
}  // namespace quire::QUIRE_ISA
