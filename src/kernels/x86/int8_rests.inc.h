// The second digits of kInt8x2. A fifth of the blocks have one, and which ones differs from row to row: each row is
// multiplied on its own, after the first digits, while the weights are in a near cache.
#pragma once

#include "kernels/x86/int8_tile.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// Sums of panels that are multiplied together, [kPanelsBeside][kTileRows][kPanel], between parts of the blocks.
struct RestSums {
  alignas(64) float acc[kPanelsBeside * kTileRows * kPanel], low[kPanelsBeside * kTileRows * kPanel];
};

// Adds the products of one row's rests in blocks [begin, end) with half h of each panel's outputs to acc and low. sources
// and scales begin with block `begin`, row with block 0.
template <int kPanels, int kGroup, class Source, class Scales>
QUIRE_INLINE void add_row_rests(const Source* sources, const Scales* scales, int begin, int end, int h,
                                const Int8Block* row, Floats (&acc)[1][kPanels], Floats (&low)[1][kPanels]) {
  constexpr bool kSupers = kGroup == 16 && Scales::kTwoLevels;
  constexpr int kBlocks = kSupers ? kSuperBlocks : kRestBlocks;
  static_assert(kRestBlocks % kBlocks == 0 && kScaleBlocks % kRestBlocks == 0);
  const int zero = sources[0].zero();
  for (int b = begin; b < end; b += kBlocks) {
    uint32_t left = row[b / kRestBlocks * kRestBlocks].rests >> b % kRestBlocks;
    const auto add_to = [&](Floats(&sums)[1][kPanels], Floats(&lows)[1][kPanels]) __attribute__((always_inline)) {
      for (; left != 0; left &= left - 1) {
        const int block = b + __builtin_ctz(left);
        const Int8Block* const rows[] = {row + block};
        add_block<kGroup>(sources, scales, zero, block - begin, h, rows, sums, lows);
      }
    };
    if constexpr (kSupers) {
      left &= (1u << kSuperBlocks) - 1;
      if (left == 0) continue;
      Floats part[1][kPanels], part_low[1][kPanels];  // over the blocks under a float16
      for (int p = 0; p < kPanels; ++p) part[0][p] = part_low[0][p] = Floats::all(0.0f);
      add_to(part, part_low);
      for (int p = 0; p < kPanels; ++p) {
        acc[0][p] = fma(part[0][p], scales[p].super(b - begin, h), acc[0][p]);
        if constexpr (Scales::kMinima)
          low[0][p] = fma(part_low[0][p], scales[p].super_minimum(b - begin, h), low[0][p]);
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
// to out [panels][kTileRows][kPanel].
template <int kGroup, class Source, class Scales>
QUIRE_INLINE void add_rest_part(const Source* sources, const Scales* scales, int begin, int end, bool is_last,
                                const Int8Rows& rests, RestSums& sums, int panels, float* out) {
  constexpr int kPanels = kPanelsBeside;
  for (int r = 0; r < rests.count; ++r) {
    for (int h = 0; h < kHalves; ++h) {
      const auto place = [&](int p) { return (p * kTileRows + r) * kPanel + h * kWidth; };
      Floats acc[1][kPanels], low[1][kPanels];
      for (int p = 0; p < kPanels; ++p) {
        acc[0][p] = begin == 0 ? Floats::all(0.0f) : Floats::load(sums.acc + place(p));
        if constexpr (Scales::kMinima) low[0][p] = begin == 0 ? Floats::all(0.0f) : Floats::load(sums.low + place(p));
      }
      add_row_rests<kPanels, kGroup>(sources, scales, begin, end, h, rests.row(r), acc, low);
      for (int p = 0; p < kPanels; ++p) {
        if (is_last) {
          if (p < panels) add_rest(out + place(p), Scales::kMinima ? add(acc[0][p], low[0][p]) : acc[0][p]);
        } else {
          store(sums.acc + place(p), acc[0][p]);
          if constexpr (Scales::kMinima) store(sums.low + place(p), low[0][p]);
        }
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
      DecodedScales<kMinima> decoded[kPanelsBeside];
      for (int begin = 0; begin < m.blocks(); begin += kScaleBlocks) {
        const int end = begin + kScaleBlocks < m.blocks() ? begin + kScaleBlocks : m.blocks();
        for (int j = 0; j < kPanelsBeside; ++j) {
          const int panel = j == 0 ? first : last;
          decode_scales(m, panel, begin, end, scales[j]);
          if constexpr (kMinima) decode_minima(m, panel, begin, end, scales[j], minima[j]);
          decoded[j] = {scales[j], minima[kMinima ? j : 0]};
        }
        const PackedCodes<kCodes> from[] = {{m, first, begin}, {m, last, begin}};
        add_rest_part<kGroup>(from, decoded, begin, end, end == m.blocks(), rests, sums, count, out);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
