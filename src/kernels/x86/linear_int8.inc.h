// Products of panels with blocks of int8 activations.
#pragma once

#include "kernels/x86/int8_tile.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// All rows, in tiles of nearly equal size.
template <int kPanels, int kMostRows, int kGroup, class Source, class Scales>
QUIRE_INLINE void int8_rows(const Source* sources, const Scales* scales, int blocks, const std::byte* x,
                            size_t x_stride, int rows, const Int8Sums& out, Prefetch& prefetch) {
  const int tiles = (rows + kMostRows - 1) / kMostRows;
  for (int i = 0; i < tiles; ++i) {
    const int row = rows * i / tiles, count = rows * (i + 1) / tiles - row;
    with_count<kMostRows>(count, [&]<int kRows>() {
      for (int h = 0; h < kHalves; ++h)
        int8_tile<kRows, kPanels, kGroup>(sources, scales, h, blocks, x + static_cast<size_t>(row) * x_stride, x_stride,
                                          out.from(0, row), prefetch);
    });
  }
}

// Not inlined: codes that are decoded to bytes first share it.
template <int kPanels, int kMostRows, int kGroup, class Source, class Scales>
[[gnu::noinline]] void shared_int8_rows(const Source* sources, const Scales* scales, int blocks, const std::byte* x,
                                        size_t x_stride, int rows, const Int8Sums& out, Prefetch& prefetch) {
  int8_rows<kPanels, kMostRows, kGroup>(sources, scales, blocks, x, x_stride, rows, out, prefetch);
}

// Whether expanded codes are multiplied by their integer scales, so that the sum of a whole block is a single integer.
// Only instructions that add products in 32 bits have room for it.
template <Codes kCodes, bool kTwoLevels>
inline constexpr bool kFold = kTwoLevels&& kSignedOffset != 0 && (kCodes == Codes::kU2 || kCodes == Codes::kU3);

// Adds panels p .. p + kPanels - 1 times the rows to the sums. At most kMostRows rows at a time; kExpand: over bytes that
// are decoded once for all of them.
template <Codes kCodes, int kGroup, int kPanels, int kMostRows, bool kExpand, bool kMinima, bool kTwoLevels>
void int8_blocks(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, const Int8Sums& out) {
  // Instructions that multiply bytes into 32 bits work for codes of any number of bits.
  using From = PackedCodes<kCodes>;
  using Bytes = std::conditional_t<kFold<kCodes, kTwoLevels>, FoldedBlocks,
                                   ByteBlocks<kSignedOffset != 0 ? 8 : From::kByteBits, From::kUnsigned>>;
  constexpr int kBlocks = kExpand ? kExpandedBlocks : kScaleBlocks;
  alignas(64) ScaleMemory scales[kPanels], minima[kMinima ? kPanels : 1];
  alignas(64) SuperMemory supers[kTwoLevels ? kPanels : 1], super_minima[kTwoLevels && kMinima ? kPanels : 1];
  Bytes expanded[kExpand ? kPanels : 1];
  const int blocks = m.blocks(), calls = blocks * ((rows + kMostRows - 1) / kMostRows) * kHalves;
  Prefetch prefetch =
      calls == blocks && kPanels == 1 ? Prefetch::ahead(m, p, calls) : Prefetch::next_panels(m, p, kPanels, calls);
  for (int b = 0; b < blocks; b += kBlocks) {
    const int end = b + kBlocks < blocks ? b + kBlocks : blocks;
    const std::byte* inputs = x + static_cast<size_t>(b) * sizeof(Int8Block);
    DecodedScales<kMinima, kTwoLevels> decoded[kPanels];
    for (int i = 0; i < kPanels; ++i) {
      if constexpr (kTwoLevels) {
        decode_two_levels(m, p + i, b, end, kExpand && Bytes::kFolded ? nullptr : scales[i], supers[i]);
        if constexpr (kMinima) decode_minimum_pairs(m, p + i, b, end, minima[i], super_minima[i]);
        decoded[i] = {scales[i], minima[kMinima ? i : 0], supers[i], super_minima[kMinima ? i : 0]};
      } else {
        decode_scales(m, p + i, b, end, scales[i]);
        if constexpr (kMinima) decode_minima(m, p + i, b, end, scales[i], minima[i]);
        decoded[i] = {scales[i], minima[kMinima ? i : 0]};
      }
    }
    const From from[] = {{m, p, b}, {m, p + kPanels - 1, b}};
    const Int8Sums sums{out.acc, out.low, b == 0, end == blocks};
    if constexpr (kExpand) {
      for (int i = 0; i < kPanels; ++i) {
        if constexpr (Bytes::kFolded) {
          expanded[i].fill(m, p + i, b, from[i], end - b);
        } else {
          expanded[i].fill(from[i], end - b);
        }
      }
      shared_int8_rows<kPanels, kMostRows, kGroup>(expanded, decoded, end - b, inputs, x_stride, rows, sums, prefetch);
    } else {
      shared_int8_rows<kPanels, kMostRows, kGroup>(from, decoded, end - b, inputs, x_stride, rows, sums, prefetch);
    }
  }
}

// With the scales as they are in the panels; false: they are of a kind that is decoded first. Two-level scales take so
// many instructions that only few rows do without decoding them.
template <Codes kCodes, int kGroup, bool kFew>
bool int8_direct(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, const Int8Sums& out) {
  constexpr int kPanels = kFew ? 1 : kPanelsBeside;
  return with_panel_scales<kCodes, kGroup, kFew>(
      m, p, [&]<class Scales>(const Scales& first) __attribute__((always_inline)) {
        constexpr int kMostRows = kFew ? kFewestBeside - 1 : kRowsBeside < Scales::kMinima || kGroup == 16 > ;
        const Scales scales[] = {first, {m, p + kPanels - 1}};
        const PackedCodes<kCodes> from[] = {{m, p, 0}, {m, p + kPanels - 1, 0}};
        const int calls = m.blocks() * ((rows + kMostRows - 1) / kMostRows) * kHalves;
        Prefetch prefetch =
            kFew && kHalves == 1 ? Prefetch::ahead(m, p, calls) : Prefetch::next_panels(m, p, kPanels, calls);
        int8_rows<kPanels, kMostRows, kGroup>(from, scales, m.blocks(), x, x_stride, rows, out, prefetch);
      });
}

// out [panels][kTileRows][kPanel] = panels p .. p + panels - 1 times the rows; panels <= kFloatPanels. kTwoLevels: groups
// of 16 with ScaleKind::kSuper.
template <Codes kCodes, int kGroup, bool kMinima, bool kTwoLevels = false>
void int8_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows, float* out) {
  static_assert(kFloatPanels == kPanelsBeside);
  // Plain 4 and 8 bits are cheaper to decode again than to load decoded.
  constexpr bool kExpand = !((kCodes == Codes::kU4 || kCodes == Codes::kI8) && kGroup == kBlockInputs);
  // All formats with these codes and scales are usual ones.
  constexpr bool kUsual = kCodes == Codes::kU5 || kCodes == Codes::kU6 || kTwoLevels;
  constexpr int kMostBeside = kRowsBeside < kMinima || (kGroup == 16 && !kFold<kCodes, kTwoLevels>) > ;
  alignas(64) float low[kMinima ? kPanelsBeside * kTileRows * kPanel : 1];
  const Int8Sums sums{out, low};
  if (panels == kPanelsBeside && rows >= kFewestBeside) {
    bool done = false;
    if constexpr (!kExpand) done = int8_direct<kCodes, kGroup, false>(m, p, x, x_stride, rows, sums);
    if (!done)
      int8_blocks<kCodes, kGroup, kPanelsBeside, kMostBeside, kExpand, kMinima, kTwoLevels>(m, p, x, x_stride, rows,
                                                                                            sums);
  } else {
    for (int i = 0; i < panels; ++i) {
      const Int8Sums of_panel = sums.from(i, 0);
      if (rows >= kFewestBeside) {
        int8_blocks<kCodes, kGroup, 1, kMostInt8Rows, kExpand, kMinima, kTwoLevels>(m, p + i, x, x_stride, rows,
                                                                                    of_panel);
      } else if (!int8_direct<kCodes, kGroup, true>(m, p + i, x, x_stride, rows, of_panel)) {
        if constexpr (!kUsual)
          int8_blocks<kCodes, kGroup, 1, kFewestBeside - 1, false, kMinima, kTwoLevels>(m, p + i, x, x_stride, rows,
                                                                                        of_panel);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
