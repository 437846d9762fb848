// Products of weights in groups with a scale, on matrix tiles: a software pipeline of one panel by 16 rows.
#pragma once

#include "kernels/x86/amx_operands.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// How codes are multiplied by one kind of inputs: decoding, product, scaled addition.
template <int kGroupOf>
struct Bf16Product {
  static constexpr int kGroup = kGroupOf, kInputBytes = 2;
  static constexpr bool kPairs = false, kTwoLevels = false;
  using Inputs = Bf16Inputs;

  static const void* inputs(const Inputs& x, int k) { return &x.x[0][k]; }
  static size_t row_stride(size_t /*x_stride*/) { return sizeof Inputs::x[0]; }
  template <int kSums, int kIn, int kWeights>
  QUIRE_INLINE void dot(Tiles& tiles) {
    tiles.dot_bf16<kSums, kIn, kWeights>();
  }
  QUIRE_INLINE Floats add_scaled(const std::byte* sums, Floats scale, const Inputs* /*x*/, Floats acc) {
    return fma(Floats::load(reinterpret_cast<const float*>(sums)), scale, acc);
  }
};
template <int kGroupOf, bool kTwoLevelsOf = false>
struct Int8Product {
  static constexpr int kGroup = kGroupOf, kInputBytes = 1;
  static constexpr bool kPairs = kGroup == 16, kTwoLevels = kTwoLevelsOf;  // pairs of groups are added before scaling
  using Inputs = Int8Block;                                                // what a group's first row has

  static const void* inputs(const Inputs& x, int k) { return &x.q[k]; }
  static size_t row_stride(size_t x_stride) { return x_stride; }
  template <int kSums, int kIn, int kWeights>
  QUIRE_INLINE void dot(Tiles& tiles) {
    tiles.dot_int8<kSums, kIn, kWeights>();
  }
  QUIRE_INLINE Floats add_scaled(const std::byte* sums, Floats scale, const Inputs* x, Floats acc) {
    return fma(Floats::of(Ints::load(sums)), mul(scale, Floats::all(x->scale)), acc);
  }
  QUIRE_INLINE Floats add_pair(const std::byte* first, Floats first_scale, const std::byte* second, Floats second_scale,
                               const Inputs* x, Floats acc) {
    const Floats sum =
        fma(Floats::of(Ints::load(second)), second_scale, mul(Floats::of(Ints::load(first)), first_scale));
    return fma(sum, Floats::all(x->scale), acc);
  }
};

// Writes blocks of a panel as tiles want them.
template <class P, Codes kCodes>
class Decode {
 public:
  Decode(const PackedMatrix& m, int p, const TileDecoder& decoder)
      : decoder_(decoder), codes_(m, p, 0), floats_(m, p, 0) {}

  QUIRE_INLINE constexpr size_t block_bytes() { return code_block_bytes(kCodes); }
  [[gnu::always_inline]] void operator()(int b, std::byte* out) const {
    line<0>(b, out), line<1>(b, out), line<2>(b, out), line<3>(b, out);
  }

 private:
  template <int kLine>
  [[gnu::always_inline]] void line(int b, std::byte* out) const {
    if constexpr (P::kInputBytes == 2) {
      decode_bf16_line<kCodes, kLine>(decoder_, codes_, floats_, b, out);
    } else {
      decode_int8_line<kCodes, kLine>(codes_, b, out);
    }
  }

  const TileDecoder& decoder_;
  const PackedCodes<kCodes> codes_;
  const FloatCodes<kCodes, true> floats_;
};
// For blocks that an earlier pass has decoded.
struct Decoded {
  Decoded(const PackedMatrix&, int, const TileDecoder&) {}
};

// Memory of a call. Rows of `sums` beyond those that tiles store are zero.
struct alignas(64) TileMemory {
  std::byte weights[kChunk][2 * kBlockInputs * kPanel];  // decoded, block b at slot(b)
  float scales[2][kChunk * 2][kPanel];                   // for two chunks of blocks: [blocks * groups]
  float supers[2][kChunk / kSuperBlocks][kPanel];        // the upper level of two-level scales
  std::byte sums[4][kRowGroup * kPanel * 4];
};

QUIRE_INLINE int slot(int block) {
  static_assert((kChunk & (kChunk - 1)) == 0);
  return block & (kChunk - 1);
}

// What one pass multiplies: panels by rows over some blocks of K. Adds to
// acc [panels][groups of rows][kRowGroup][kPanel].
struct Region {
  const PackedMatrix& m;
  int panel_begin, panel_end;
  int block_begin, block_end;
  int rows;
  const std::byte* x;  // block_begin of the first group of rows
  size_t x_stride;     // bytes of a row
  const LinearLoop& loop;
  float* acc;

  int groups() const { return (rows + kRowGroup - 1) / kRowGroup; }
  float* sums(int panel, int group) const {
    return acc + ((panel - panel_begin) * groups() + group) * kRowGroup * kPanel;
  }
  template <class Inputs>
  const Inputs* inputs(int group) const {
    return reinterpret_cast<const Inputs*>(x + static_cast<size_t>(group) * kRowGroup * x_stride);
  }
};

// One panel by one group of rows, of which the first kRows count. A software pipeline: each group of weights is decoded
// two blocks ahead (unless it is Decoded), multiplied, stored two groups later (a product takes 52 cycles), and scaled
// and added one group after that.
template <class P, class From, int kRows>
void multiply_panel(Tiles& tiles, TileMemory& memory, const TileDecoder& decoder, const Region& region, int p,
                    int group) {
  constexpr int kGroup = P::kGroup, kGroups = kBlockInputs / kGroup;
  constexpr bool kDecode = !std::is_same_v<From, Decoded>;
  const PackedMatrix& m = region.m;
  const From from(m, p, decoder);
  const auto* x = region.inputs<typename P::Inputs>(group);
  const size_t row_stride = P::row_stride(region.x_stride);
  const int begin = region.block_begin, end = region.block_end, count = (end - begin) * kGroups;
  // Scales are decoded in chunks of kChunk blocks.
  const auto scales_of = [&](int b) __attribute__((always_inline)) {
    return memory.scales[(b - begin) / kChunk % 2] + (b - begin) % kChunk * kGroups;
  };
  const auto supers_of = [&](int b) __attribute__((always_inline)) {
    return memory.supers[(b - begin) / kChunk % 2] + (b - begin) % kChunk / kSuperBlocks;
  };
  // What to prefetch: bytes further on in this panel, or the same chunk of the next.
  const std::byte* next = m.panel(p) + m.layout.codes + (region.groups() == 1 ? region.loop.ahead : m.layout.bytes);
  const auto decode = [&](int b) __attribute__((always_inline)) {
    if constexpr (kDecode) {
      if (b < begin || b >= end) return;
      for (size_t i = 0; i < From::block_bytes(); i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(next + static_cast<size_t>(b) * From::block_bytes() + i),
                     _MM_HINT_T0);
      if ((b - begin) % kChunk == 0) {
        const int last = b + kChunk < end ? b + kChunk : end;
        if constexpr (P::kTwoLevels) {
          decode_two_levels(m, p, b, last, *scales_of(b), *supers_of(b));
        } else {
          decode_scales(m, p, b, last, *scales_of(b));
        }
      }
      from(b, memory.weights[slot(b - begin)]);
    }
  };
  Floats acc[kRows];
  float* const sums = region.sums(p, group);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = P::kTwoLevels ? Floats::all(0.0f) : Floats::load(sums + r * kPanel);

  // Scales and adds a stored group; with pairs, both groups of a block after the second.
  const auto add_group = [&]<int kLine>(int done) __attribute__((always_inline)) {
    if (P::kPairs && done % 2 == 0) return;
    const int b = begin + done / kGroups;
    const std::byte* line = memory.sums[kLine];
    const Floats scale = Floats::load(scales_of(b)[done % kGroups]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto* row = reinterpret_cast<const std::byte*>(x + done / kGroups) + static_cast<size_t>(r) * row_stride;
      const auto* inputs = reinterpret_cast<const typename P::Inputs*>(row);
      if constexpr (P::kPairs) {
        const std::byte* first = memory.sums[(kLine + 3) % 4];  // stored a turn before
        acc[r] = P::add_pair(first + 64 * r, Floats::load(scales_of(b)[0]), line + 64 * r, scale, inputs, acc[r]);
      } else {
        acc[r] = P::add_scaled(line + 64 * r, scale, inputs, acc[r]);
      }
    }
    if (P::kTwoLevels && (b % kSuperBlocks == kSuperBlocks - 1 || b + 1 == end)) {
      const Floats super = Floats::load(*supers_of(b));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        store(sums + r * kPanel, fma(acc[r], super, Floats::load(sums + r * kPanel)));
        acc[r] = Floats::all(0.0f);
      }
    }
  };
  const auto turn = [&]<int kTile>(int i) __attribute__((always_inline)) {
    if (kDecode && kTile % kGroups == 0) decode(begin + i / kGroups + 2);
    if (i >= 0 && i < count) {
      const int b = begin + i / kGroups, k = i % kGroups * kGroup;
      tiles.zero<kTile>();
      tiles.load<4 + kTile % 2>(P::inputs(x[i / kGroups], k), row_stride);
      tiles.load<6 + kTile % 2>(memory.weights[slot(b - begin)] + k * kPanel * P::kInputBytes, 64);
      P::template dot<kTile, 4 + kTile % 2, 6 + kTile % 2>(tiles);
    }
    if (const int done = i - 2; done >= 0 && done < count)
      tiles.store<(kTile + 2) % 4>(memory.sums[(kTile + 2) % 4], 64);
    if (const int done = i - 3; done >= 0 && done < count) add_group.template operator()<(kTile + 1) % 4>(done);
  };
  for (int i = kDecode ? -4 : 0; i < count + 3; i += 4) {
    turn.template operator()<0>(i);
    turn.template operator()<1>(i + 1);
    turn.template operator()<2>(i + 2);
    turn.template operator()<3>(i + 3);
  }
  if (P::kTwoLevels) return;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) store(sums + r * kPanel, acc[r]);
}

// Weights in groups with a scale. The first group of rows decodes; the others reuse its decoded weights.
template <class P, Codes kCodes>
void multiply_groups(TileMemory& memory, const Region& region) {
  const int rows = region.rows < kRowGroup ? region.rows : kRowGroup;
  const TileDecoder decoder(region.m.format);
  Tiles tiles({rows, P::kGroup * P::kInputBytes});
  using From = Decode<P, kCodes>;
  auto* first = multiply_panel<P, From, 16>;
  if constexpr (P::kInputBytes == 2) {  // tiles of int8 are used from kInt8TileRows on
    if (rows <= 8)
      first = rows == 1   ? multiply_panel<P, From, 1>
              : rows <= 4 ? multiply_panel<P, From, 4>
                          : multiply_panel<P, From, 8>;
  }
  for (int p = region.panel_begin; p < region.panel_end; ++p) {
    first(tiles, memory, decoder, region, p, 0);
    for (int g = 1; g < region.groups(); ++g) multiply_panel<P, Decoded, 16>(tiles, memory, decoder, region, p, g);
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
