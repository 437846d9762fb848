// The second digits of kInt8x2. A fifth of the blocks have one, and which ones differs from row to row: each row is
// multiplied on its own, after the first digits, while the weights are in a near cache.
#pragma once

#include "kernels/x86/int8_tile.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Two panels, or both halves of one.
inline constexpr int kRestColumns = kPanelsBeside * kHalves;

// Sums of panels that are multiplied together, [kPanelsBeside][kTileRows][kPanel], between parts of the blocks.
struct RestSums {
  alignas(64) float acc[kPanelsBeside * kTileRows * kPanel], low[kPanelsBeside * kTileRows * kPanel];
};

// Adds the products of one row's rests in blocks [begin, end) with the columns to acc and low. sources
// and scales begin with block `begin`, row with block 0.
template <int kGroup, class Source, class Scales>
QUIRE_INLINE void add_row_rests(const Source* sources, const Scales* scales, int begin, int end, const Int8Block* row,
                                Floats (&acc)[1][kRestColumns], Floats (&low)[1][kRestColumns]) {
  constexpr bool kSupers = kGroup == 16 && Scales::kTwoLevels;
  constexpr int kBlocks = kSupers ? kSuperBlocks : kRestBlocks;
  static_assert(kRestBlocks % kBlocks == 0 && kScaleBlocks % kRestBlocks == 0);
  const int zero = sources[0].zero();
  for (int b = begin; b < end; b += kBlocks) {
    uint32_t left = row[b / kRestBlocks * kRestBlocks].rests >> b % kRestBlocks;
    const auto add_to = [&](auto& sums, auto& lows) __attribute__((always_inline)) {
      for (; left != 0; left &= left - 1) {
        const int block = b + __builtin_ctz(left);
        const Int8Block* const rows[] = {row + block};
        add_block<kGroup>(sources, scales, zero, block - begin, 0, rows, sums, lows);
      }
    };
    if constexpr (kSupers) {
      left &= (1u << kSuperBlocks) - 1;
      if (left == 0) continue;
      Floats part[1][kRestColumns], part_low[1][kRestColumns];  // over the blocks under a float16
      for (int c = 0; c < kRestColumns; ++c) part[0][c] = part_low[0][c] = Floats::all(0.0f);
      add_to(part, part_low);
      for (int c = 0; c < kRestColumns; ++c) {
        acc[0][c] = fma(part[0][c], scales[c].super(b - begin, half_of(c, 0)), acc[0][c]);
        if constexpr (Scales::kMinima)
          low[0][c] = fma(part_low[0][c], scales[c].super_minimum(b - begin, half_of(c, 0)), low[0][c]);
      }
    } else {
      add_to(acc, low);
    }
  }
}

// first, the sums of the first digits, becomes those of both.
QUIRE_INLINE void add_rest(float* first, Floats rest) {
  const Floats sum = Floats::load(first);
  store(first, choose(sum, add(add(sum, Floats::all(0.0f)), rest), abs(sum), Floats::all(__builtin_inff())));
}

// Blocks [begin, end) of `panels` panels and all rows. The first part of the blocks begins the sums; the last one adds them
// to out [panels][kTileRows][kPanel]. sources and scales: of the columns.
template <int kGroup, class Source, class Scales>
QUIRE_INLINE void add_rest_part(const Source* sources, const Scales* scales, int begin, int end, bool is_last,
                                const Int8Rows& rests, RestSums& sums, int panels, float* out) {
  for (int r = 0; r < rests.count; ++r) {
    const auto place = [&](int c) { return (c / kHalves * kTileRows + r) * kPanel + half_of(c, 0) * kWidth; };
    Floats acc[1][kRestColumns], low[1][kRestColumns];
    for (int c = 0; c < kRestColumns; ++c) {
      acc[0][c] = begin == 0 ? Floats::all(0.0f) : Floats::load(sums.acc + place(c));
      if constexpr (Scales::kMinima) low[0][c] = begin == 0 ? Floats::all(0.0f) : Floats::load(sums.low + place(c));
    }
    add_row_rests<kGroup>(sources, scales, begin, end, rests.row(r), acc, low);
    for (int c = 0; c < kRestColumns; ++c) {
      if (is_last) {
        if (c / kHalves < panels) add_rest(out + place(c), Scales::kMinima ? add(acc[0][c], low[0][c]) : acc[0][c]);
      } else {
        store(sums.acc + place(c), acc[0][c]);
        if constexpr (Scales::kMinima) store(sums.low + place(c), low[0][c]);
      }
    }
  }
}

// Adds panels p .. p + panels - 1 times the rests to out [panels][kTileRows][kPanel], the sums of the first digits. rests:
// of the rows, from block 0 on.
template <Codes kCodes, int kGroup, bool kMinima, bool kTwoLevels>
[[gnu::noinline]] void add_rests(const PackedMatrix& m, int p, int panels, const Int8Rows& rests, float* out) {
  RestSums sums;
  for (int i = 0; i < panels; i += kPanelsBeside, out += kPanelsBeside * kTileRows * kPanel) {
    const int count = panels - i < kPanelsBeside ? panels - i : kPanelsBeside;
    const int first = p + i, last = first + count - 1;  // a missing panel: the same one twice
    if (with_usual_scales<kCodes, kGroup, kMinima, true>(
            m, first, [&]<class Scales>(const Scales& of_first) __attribute__((always_inline)) {
              const PackedCodes<kCodes> from[] = {{m, first, 0}, {m, last, 0}};
              const Scales scales[] = {of_first, {m, last}};
              add_rest_part<kGroup>(from, scales, 0, m.blocks(), true, rests, sums, count, out);
            }))
      continue;
    if constexpr (!kUsualScales<kCodes, kTwoLevels>) {
      alignas(64) ScaleMemory scales[kPanelsBeside], minima[kMinima ? kPanelsBeside : 1];
      DecodedScales<kMinima> decoded[kRestColumns];
      for (int begin = 0; begin < m.blocks(); begin += kScaleBlocks) {
        const int end = begin + kScaleBlocks < m.blocks() ? begin + kScaleBlocks : m.blocks();
        for (int j = 0; j < kPanelsBeside; ++j) {
          const int panel = j == 0 ? first : last;
          decode_scales(m, panel, begin, end, scales[j]);
          if constexpr (kMinima) decode_minima(m, panel, begin, end, scales[j], minima[j]);
        }
        for (int c = 0; c < kRestColumns; ++c) decoded[c] = {scales[c / kHalves], minima[kMinima ? c / kHalves : 0]};
        const PackedCodes<kCodes> from[] = {{m, first, begin}, {m, last, begin}};
        add_rest_part<kGroup>(from, decoded, begin, end, end == m.blocks(), rests, sums, count, out);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
