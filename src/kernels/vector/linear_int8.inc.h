// Products of panels with blocks of int8 activations.
#pragma once

#include "kernels/vector/int8_tile.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// All rows, in tiles of nearly equal size.
template <int kPanels, int kMostRows, int kGroup, class Source, class Scales, class Prefetch>
QUIRE_INLINE void int8_rows(const Source* sources, const Scales* scales, int blocks, const Int8Rows& x,
                            const Int8Sums& out, Prefetch& prefetch) {
  const int tiles = (x.count + kMostRows - 1) / kMostRows;
  for (int i = 0; i < tiles; ++i) {
    const int row = x.count * i / tiles, count = x.count * (i + 1) / tiles - row;
    with_count<kMostRows>(count, [&]<int kRows>() {
      for (int h = 0; h < kHalves; ++h)
        int8_tile<kRows, kPanels, kGroup>(sources, scales, h, blocks, x, row, out.from(0, row), prefetch);
    });
  }
}

// Not inlined: codes that are decoded to bytes first share it.
template <int kPanels, int kMostRows, int kGroup, class Source, class Scales, class Prefetch>
[[gnu::noinline]] void shared_int8_rows(const Source* sources, const Scales* scales, int blocks, const Int8Rows& x,
                                        const Int8Sums& out, Prefetch& prefetch) {
  int8_rows<kPanels, kMostRows, kGroup>(sources, scales, blocks, x, out, prefetch);
}

// Whether expanded codes are multiplied by their integer scales, so that the sum of a whole block is a single integer.
// Only instructions that add products in 32 bits have room for it.
template <Codes kCodes, bool kTwoLevels>
inline constexpr bool kFold = kTwoLevels&& kSignedOffset != 0 && (kCodes == Codes::kU2 || kCodes == Codes::kU3);

// Adds panels p .. p + kPanels - 1 times the rows to the sums. At most kMostRows rows at a time; kExpand: over bytes that
// are decoded once for all of them.
template <Codes kCodes, int kGroup, int kPanels, int kMostRows, bool kExpand, bool kMinima, bool kTwoLevels>
void int8_blocks(const PackedMatrix& m, int p, const Int8Rows& x, size_t ahead, const Int8Sums& out) {
  // Instructions that multiply bytes into 32 bits work for codes of any number of bits.
  using From = PackedCodes<kCodes>;
  using Bytes = std::conditional_t<kFold<kCodes, kTwoLevels>, FoldedBlocks,
                                   ByteBlocks<kSignedOffset != 0 ? 8 : From::kByteBits, From::kUnsigned>>;
  constexpr int kBlocks = kExpand ? kExpandedBlocks : kScaleBlocks;
  alignas(64) ScaleMemory scales[kPanels], minima[kMinima ? kPanels : 1];
  alignas(64) SuperMemory supers[kTwoLevels ? kPanels : 1], super_minima[kTwoLevels && kMinima ? kPanels : 1];
  Bytes expanded[kExpand ? kPanels : 1];
  const int blocks = m.blocks(), calls = blocks * ((x.count + kMostRows - 1) / kMostRows) * kHalves;
  Prefetch<> prefetch = calls == blocks && kPanels == 1 ? Prefetch<>::ahead(m, p, calls, ahead)
                                                        : Prefetch<>::next_panels(m, p, kPanels, calls);
  for (int b = 0; b < blocks; b += kBlocks) {
    const int end = b + kBlocks < blocks ? b + kBlocks : blocks;
    const Int8Rows inputs = x.from_block(b);
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
      shared_int8_rows<kPanels, kMostRows, kGroup>(expanded, decoded, end - b, inputs, sums, prefetch);
    } else {
      shared_int8_rows<kPanels, kMostRows, kGroup>(from, decoded, end - b, inputs, sums, prefetch);
    }
  }
}

// With the scales as they are in the panels; false: they are of a kind that is decoded first. Two-level scales take so
// many instructions that only few rows do without decoding them.
template <Codes kCodes, int kGroup, bool kMinima, bool kFew, int kPanels>
bool int8_direct(const PackedMatrix& m, int p, const Int8Rows& x, size_t ahead, const Int8Sums& out) {
  using Streams = Prefetch<kFew ? kPanels : 1>;
  return with_usual_scales<kCodes, kGroup, kMinima, kFew>(
      m, p, [&]<class Scales>(const Scales& first) __attribute__((always_inline)) {
        constexpr int kMostRows = kFew ? kFewestBeside - 1 : kRowsBeside < Scales::kMinima || kGroup == 16 > ;
        const Scales scales[] = {first, {m, p + kPanels - 1}};
        const PackedCodes<kCodes> from[] = {{m, p, 0}, {m, p + kPanels - 1, 0}};
        const int calls = m.blocks() * ((x.count + kMostRows - 1) / kMostRows) * kHalves;
        Streams prefetch = kFew && calls == m.blocks() ? Streams::ahead(m, p, calls, ahead)
                                                       : Streams::next_panels(m, p, kPanels, calls);
        int8_rows<kPanels, kMostRows, kGroup>(from, scales, m.blocks(), x, out, prefetch);
      });
}

// Adds panels p .. p + panels - 1 times the rows to the sums. kTwoLevels: groups of 16 with ScaleKind::kSuper.
template <Codes kCodes, int kGroup, bool kMinima, bool kTwoLevels>
QUIRE_INLINE void multiply_int8(const PackedMatrix& m, int p, int panels, const Int8Rows& x, const LinearLoop& loop,
                                const Int8Sums& sums) {
  // Plain 4 and 8 bits are cheaper to decode again than to load decoded.
  constexpr bool kExpand = !((kCodes == Codes::kU4 || kCodes == Codes::kI8) && kGroup == kBlockInputs);
  constexpr int kMostBeside = kRowsBeside < kMinima || (kGroup == 16 && !kFold<kCodes, kTwoLevels>) > ;
  int i = 0;
  const auto stream = [&]<int kPanels>() {
    for (; i + kPanels <= panels; i += kPanels) {
      if (int8_direct<kCodes, kGroup, kMinima, true, kPanels>(m, p + i, x, loop.ahead, sums.from(i, 0))) continue;
      if constexpr (!kUsualScales<kCodes, kTwoLevels> && kPanels == 1) {
        int8_blocks<kCodes, kGroup, 1, kFewestBeside - 1, false, kMinima, kTwoLevels>(m, p + i, x, loop.ahead,
                                                                                      sums.from(i, 0));
      } else {
        return;
      }
    }
  };
  if (loop.kind == LinearLoop::Kind::kStream) {
    if constexpr (kPanelsBeside == 2) stream.template operator()<2>();
    stream.template operator()<1>();
    return;
  }
  if constexpr (kPanelsBeside == 2) {
    for (; i + 2 <= panels; i += 2) {
      const Int8Sums of_panels = sums.from(i, 0);
      if constexpr (!kExpand) {
        if (int8_direct<kCodes, kGroup, kMinima, false, 2>(m, p + i, x, loop.ahead, of_panels)) continue;
      }
      int8_blocks<kCodes, kGroup, 2, kMostBeside, kExpand, kMinima, kTwoLevels>(m, p + i, x, loop.ahead, of_panels);
    }
  }
  for (; i < panels; ++i) {
    const Int8Sums of_panel = sums.from(i, 0);
    if constexpr (kPanelsBeside == 1 && !kExpand) {
      if (int8_direct<kCodes, kGroup, kMinima, false, 1>(m, p + i, x, loop.ahead, of_panel)) continue;
    }
    int8_blocks<kCodes, kGroup, 1, kMostInt8Rows, kExpand, kMinima, kTwoLevels>(m, p + i, x, loop.ahead, of_panel);
  }
}

// out [panels][kTileRows][kPanel] = panels p .. p + panels - 1 times the rows.
template <Codes kCodes, int kGroup, bool kMinima, bool kTwoLevels = false>
void int8_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                 const LinearLoop& loop, float* out) {
  alignas(64) float low[kMinima ? kMostPanelsAtOnce * kTileRows * kPanel : 1];
  multiply_int8<kCodes, kGroup, kMinima, kTwoLevels>(m, p, panels, {x, x_stride, rows}, loop, {out, low});
}

}  // namespace
}  // namespace quire::QUIRE_ISA
