// The keys and values of a block as lines of a tile, for attention on tiles (amx_attention.inc.h).
//
// A product takes 16 lines of 64 bytes: 32 dimensions of the keys of a page, or 16 dimensions of the values of two
// pages. Pages hold the first as they are, with a bf16 cache; a tile loads them in place. Everything else is written to
// memory of the call first:
//
//   values     A chunk of 32 tokens is one product by definition, but its two pages lie anywhere, and a tile load needs
//              evenly spaced rows. So they are copied, once for all queries of a tile, while the tile unit multiplies
//              scores. A copy is not kept for the next tile: nothing tells whether the pages have changed since.
//   codes      They are widened to bf16.
//   odd sizes  Where the dimensions of keys end in the middle of a chunk, the rest is zeros.
#pragma once

#include "kernels/vector/attention.inc.h"

namespace quire::QUIRE_ISA {
namespace {

inline constexpr int kLineBytes = 64, kPageLines = kPageTokens / 2;  // a page's values: a line for each pair of tokens
inline constexpr int kTileBytes = 16 * kLineBytes;

// A block, as far as some query of the tile sees it.
struct Block {
  int token;                           // its first
  bool begins = true;                  // the first that the tile sees of its split
  int pages;                           // up to the last that a query sees
  int tokens[kBlockPages];             // tokens of each page up to the last that a query sees; 0: none sees it
  const std::byte* page[kBlockPages];  // if no query sees it: some memory of the cache
  ptrdiff_t ahead[kBlockPages];        // from each page to the one that is read a block later

  // Block [token, token + 64) of a tile that sees tokens [first, end).
  Block(const Pages& kv, int block, int first, int end) : token(block) {
    const int stop = end < block + kAttentionBlock ? end : block + kAttentionBlock;
    pages = (stop - block + kPageTokens - 1) / kPageTokens;
    for (int p = 0; p < kBlockPages; ++p) {
      const int begin = block + p * kPageTokens, seen = stop - begin;
      tokens[p] = begin + kPageTokens <= first || seen <= 0 ? 0 : seen < kPageTokens ? seen : kPageTokens;
      page[p] = kv.tile.data;
      ahead[p] = 0;
      if (tokens[p] == 0) continue;
      page[p] = kv.page(begin / kPageTokens);
      ahead[p] = kv.page(begin / kPageTokens + kBlockPages) - page[p];
    }
  }
  int chunks() const { return (pages + 1) / 2; }
};

QUIRE_INLINE void put_line(std::byte* to, Ints16 line) { _mm512_store_si512(to, line.v); }
template <int kBytes>
QUIRE_INLINE void prefetch(const std::byte* p) {
  QUIRE_UNROLL
  for (int i = 0; i < kBytes; i += kLineBytes) __builtin_prefetch(p + i);
}
// The bytes of 16 elements (dimensions of a page's keys, or tokens of a column of its values) for 16 lanes.
template <KvType kType>
inline constexpr int kPlaceBytes = static_cast<int>(kv_bytes(kType, kPageTokens* kLanes));
// They as lines of bf16 pairs: in each lane elements 2i and 2i + 1, the first in the lower half.
using PairLines = Ints16[kPageLines];
template <KvType kType>
[[gnu::always_inline]] inline void load_pairs(const std::byte* p, PairLines& lines) {
  if constexpr (kType == KvType::kInt4) {
    QUIRE_UNROLL
    for (int i = 0; i < kPageLines; i += 4, p += kLineBytes) {
      const Ints16 table = Ints16::load(kInt4Words.data()), packed = Ints16::load(p);
      const auto put = [&](Ints16 even, Ints16 odd, Ints16 & first, Ints16 & second) __attribute__((always_inline)) {
        // Of elements (2, 0) and (3, 1) in the lower and the upper halves.
        first = {_mm512_mask_blend_epi16(0x55555555, odd.v, shift_right<16>(even).v)};
        second = {_mm512_mask_blend_epi16(0x55555555, shift_left<16>(odd).v, even.v)};
      };
      put(look_up_words(table, packed), look_up_words(table, shift_right<4>(packed)), lines[i], lines[i + 1]);
      put(look_up_words(table, shift_right<8>(packed)), look_up_words(table, shift_right<12>(packed)), lines[i + 2],
          lines[i + 3]);
    }
  } else {
    QUIRE_UNROLL
    for (int i = 0; i < kPageLines; ++i) {
      if constexpr (has_codes(kType)) {
        const std::byte* pair = p + i * 2 * kLanes;
        lines[i] = upper_halves(bits(codes<kType>(pair + kLanes)), bits(codes<kType>(pair)));
      } else {
        lines[i] = Ints16::load(p + i * kLineBytes);
      }
    }
  }
}

// Chunk c of the dimensions of a block's keys, page by page.
template <KvType kType>
class KeyLines {
 public:
  explicit KeyLines(const KvLayer& kv)
      : dims_(kv.padded_key()), chunks_((dims_ + kAttentionChunk - 1) / kAttentionChunk) {}
  int chunks() const { return chunks_; }

  // Call it before at(), well before the tile load, which would wait for the stores. Two chunks have room.
  void prepare(const Block& block, int chunk) {
    if (in_place(chunk)) return;
    for (int p = 0; p < block.pages; ++p) {
      const std::byte* from = block.page[p] + chunk * kSourceBytes;
      std::byte* to = lines_[chunk % 2][p];
      const int places = dims_ - chunk * kAttentionChunk >= kAttentionChunk ? 2 : 1;
      for (int place = 0; place < 2; ++place, from += kPlaceBytes<kType>) {
        PairLines lines = {};
        if (place < places) load_pairs<kType>(from, lines);
        QUIRE_UNROLL
        for (int i = 0; i < kPageLines; ++i) put_line(to + (place * kPageLines + i) * kLineBytes, lines[i]);
      }
    }
  }
  const std::byte* at(const Block& block, int page, int chunk) const {
    return in_place(chunk) ? block.page[page] + chunk * kSourceBytes : lines_[chunk % 2][page];
  }
  void prefetch_next(const Block& block, int chunk) const {
    for (int p = 0; p < block.pages; ++p) {
      if (block.ahead[p] != 0) prefetch<kSourceBytes>(block.page[p] + block.ahead[p] + chunk * kSourceBytes);
    }
  }

 private:
  static constexpr int kSourceBytes = 2 * kPlaceBytes<kType>;
  bool in_place(int chunk) const { return kType == KvType::kBf16 && (chunk + 1) * kAttentionChunk <= dims_; }

  int dims_, chunks_;
  alignas(64) std::byte lines_[2][kBlockPages][kTileBytes];
};

// The values of a block, by columns of 16 dimensions.
template <KvType kType>
class ValueLines {
 public:
  explicit ValueLines(const KvLayer& kv) : offset_(kv.values_offset()), columns_(kv.padded_value() / kLanes) {}
  int columns() const { return columns_; }

  void prepare(const Block& block, int column_begin, int column_end) {
    for (int column = column_begin; column < column_end; ++column) {
      for (int p = 0; p < 2 * block.chunks(); ++p) {
        const std::byte* from = block.page[p] + offset_ + column * kSourceBytes;
        put_page(from, block.tokens[p], lines_[column][p / 2] + p % 2 * kPageLines * kLineBytes);
        if (block.ahead[p] != 0) prefetch<kSourceBytes>(from + block.ahead[p]);
      }
    }
  }
  const std::byte* at(int column, int chunk) const { return lines_[column][chunk]; }

 private:
  static constexpr int kSourceBytes = kPlaceBytes<kType>;

  [[gnu::always_inline]] static void put_page(const std::byte* from, int tokens, std::byte* to) {
    if (tokens < kPageTokens && (!has_codes(kType) || tokens == 0)) return put_part(from, tokens, to);
    PairLines lines;  // all loads before the first store: a compiler must assume that `to` may change `from`
    load_pairs<kType>(from, lines);
    QUIRE_UNROLL
    for (int i = 0; i < kPageLines; ++i) put_line(to + i * kLineBytes, lines[i]);
  }
  // Tokens that no query sees may hold anything, and their weights are 0: they become zeros. (Codes need not.)
  [[gnu::noinline]] static void put_part(const std::byte* from, int tokens, std::byte* to) {
    for (int i = 0; i < kPageLines; ++i) {
      const int seen = tokens - 2 * i;
      Ints16 line = Ints16::all(0);
      if (seen > 0) line = Ints16::load(from + i * kLineBytes);
      if (seen == 1) line = band(line, Ints16::all(0xffff));
      put_line(to + i * kLineBytes, line);
    }
  }

  size_t offset_;
  int columns_;
  alignas(64) std::byte lines_[kMaxHeadDim / kLanes][kAttentionBlock / kAttentionChunk][kTileBytes];
};

}  // namespace
}  // namespace quire::QUIRE_ISA
