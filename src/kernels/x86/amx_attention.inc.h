// Attention over a bf16 or int8 cache on matrix tiles, with the policy `Tiles` (x86/tiles.h): a chunk of
// attention.inc.h is one product of 16 lanes (tokens or dimensions) for all queries of a tile.

#include "kernels/x86/attention.inc.h"
#include "kernels/x86/tiles.h"

namespace quire::QUIRE_ISA {
namespace {

// From this many queries, tiles are faster: a product costs the same for 1 query as for 16, FMAs 16 cycles a query.
constexpr int kTileQueries = 8;

template <class Tiles>
class TileUnit {
 public:
  explicit TileUnit(int queries) : tiles_({queries, 64}) {}

  template <KvType kType>
  void add(const Chunk& c, int queries, int columns) {
    if constexpr (!multiplies_bf16(kType)) {
      VectorUnit().add<kType>(c, queries, columns);
    } else {
      add_tiles<kType>(c, columns);
    }
  }
  // A row of a tile: the numbers in order, as bf16.
  static void put_bf16(Floats16 x0, Floats16 x1, float* numbers) {
    auto* row = reinterpret_cast<__m256i*>(numbers);
    _mm256_store_si256(row, _mm512_cvtepi32_epi16(shift_right<16>(bits(x0)).v));
    _mm256_store_si256(row + 1, _mm512_cvtepi32_epi16(shift_right<16>(bits(x1)).v));
  }

 private:
  static constexpr int kPlaceBytes = 8 * 64;  // the lines of one place

  template <KvType kType>
  void add_tiles(const Chunk& c, int columns) {
    tiles_.template load<4>(c.numbers, sizeof(*c.numbers)[0]);
    for (int column = 0; column < columns; column += 4) {
      const std::byte* weights[4];  // gathered before the first load, so that no load waits for stores
      for (int i = 0; i < 4 && column + i < columns; ++i) {
        const Column& of_lines = c.columns[column + i];
        weights[i] = kType == KvType::kInt8 ? widened(c, of_lines, gathered_[i]) : lines(c, of_lines, gathered_[i]);
      }
      const auto multiply = [&]<int kTile>() __attribute__((always_inline)) {
        if (column + kTile >= columns) return;
        if (c.fresh) {
          tiles_.template zero<kTile>();
        } else {
          tiles_.template load<kTile>(sums(c, column + kTile), c.sums_stride * sizeof(float));
        }
        tiles_.template load<6 + kTile % 2>(weights[kTile], 64);
        tiles_.template dot_bf16<kTile, 4, 6 + kTile % 2>();
      };
      multiply.template operator()<0>(), multiply.template operator()<1>();
      multiply.template operator()<2>(), multiply.template operator()<3>();
      const auto keep = [&]<int kTile>() __attribute__((always_inline)) {
        if (column + kTile < columns)
          tiles_.template store<kTile>(sums(c, column + kTile), c.sums_stride * sizeof(float));
      };
      keep.template operator()<0>(), keep.template operator()<1>();
      keep.template operator()<2>(), keep.template operator()<3>();
    }
  }

  static float* sums(const Chunk& c, int column) { return c.sums + column * kLanes; }

  // The 16 lines of a column, contiguous: in place, or gathered from two pages, with zeros for missing elements (their
  // slots may hold anything).
  static const std::byte* lines(const Chunk& c, const Column& column, std::byte* gathered) {
    for (int place = 0; place < 2; ++place) {
      if (column.ahead[place] == 0) continue;
      for (int line = 0; line < 8; ++line) __builtin_prefetch(column.at[place] + column.ahead[place] + 64 * line);
    }
    if (c.elements[0] == 16 && c.elements[1] == 16 && column.at[1] == column.at[0] + kPlaceBytes) return column.at[0];
    for (int place = 0; place < 2; ++place) {
      for (int line = 0; line < 8; ++line) {
        const int elements = c.elements[place] - 2 * line;
        Ints16 pair = Ints16::all(0);
        if (elements >= 1) pair = Ints16::load(column.at[place] + 64 * line);
        if (elements == 1) pair = band(pair, Ints16::all(0xffff));
        _mm512_store_si512(gathered + place * kPlaceBytes + 64 * line, pair.v);
      }
    }
    return gathered;
  }

  // The same lines of a column of codes, widened to bf16.
  static const std::byte* widened(const Chunk& c, const Column& column, std::byte* gathered) {
    for (int place = 0; place < 2; ++place) {
      const std::byte* at = column.at[place];
      for (int line = 0; line < 8; ++line) {
        Ints16 pair = Ints16::all(0);
        if (c.elements[place] > 0) pair = upper_halves(bits(codes(at + 32 * line + 16)), bits(codes(at + 32 * line)));
        _mm512_store_si512(gathered + place * kPlaceBytes + 64 * line, pair.v);
      }
      if (column.ahead[place] == 0) continue;
      for (int line = 0; line < 4; ++line) __builtin_prefetch(at + column.ahead[place] + 64 * line);
    }
    return gathered;
  }

  Tiles tiles_;
  alignas(64) std::byte gathered_[4][2 * kPlaceBytes];
};

template <class Tiles>
void tile_attention(const AttentionArgs& a, const AttentionTile& tile) {
  const int queries = tile.rows * tile.heads;
  if (!multiplies_bf16(a.kv->type) || queries < kTileQueries) return attention(a, tile);
  TileUnit<Tiles> unit(queries);
  attend(a, tile, unit);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
