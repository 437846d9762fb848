// A tile of panels times rows of int8 activations, whose sums stay in registers.
#pragma once

#include "kernels/vector/panel_source.inc.h"
#include "kernels/vector/scales.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// A tile: rows and panels whose sums stay in registers. AVX-512: two adjacent panels share each broadcast input,
// because one panel needs as many loads as products; 12 dots, 12 sums and 6 others fill the registers, or 8 of each with
// minima or with two scales in a block. AVX2: one register of outputs.
inline constexpr int kMostInt8Rows = 8;  // in a tile of one panel
inline constexpr int kFewestBeside = 5;  // rows from which two panels pay off: fewer are bound by memory
#if defined(__AVX512F__)
inline constexpr int kPanelsBeside = 2;
template <bool kMore>
inline constexpr int kRowsBeside = kMore ? 4 : 6;
#else
inline constexpr int kPanelsBeside = 1;
template <bool kMore>
inline constexpr int kRowsBeside = kMostInt8Rows;
#endif

// The sum of a group's inputs.
template <int kGroup>
QUIRE_INLINE float group_sum(const Int8Block& x, int g) {
  return kGroup == 16 ? x.scale * static_cast<float>(x.half_sums[g]) : x.sum;
}

// The scales of one panel's blocks, [blocks * groups][kPanel].
using ScaleMemory = float[2 * kScaleBlocks * kPanel];
using SuperMemory = float[kScaleBlocks / kSuperBlocks * kPanel];  // the scales of the level above

// Rows of Int8Blocks.
struct Int8Rows {
  const std::byte* data;
  size_t stride;
  int count;

  Int8Rows from_block(int b) const { return {data + static_cast<size_t>(b) * sizeof(Int8Block), stride, count}; }
  const Int8Block* row(int r) const {
    return reinterpret_cast<const Int8Block*>(data + static_cast<size_t>(r) * stride);
  }
};

// Sums [rows][kPanel] of each panel, kTileRows * kPanel apart: of products, and of minima times inputs. They are carried
// from one part of the blocks to the next; after the last part, acc holds their sum.
struct Int8Sums {
  float *acc, *low;
  bool first = true, last = true;  // whether this part of the blocks is the first, and the last

  Int8Sums from(int panel, int row) const {
    const int at = panel * kTileRows * kPanel + row * kPanel;
    return {acc + at, low + at, first, last};
  }
};

// Several columns of outputs share each broadcast input: panels, of which each fills a register, or from half h on the
// halves of one panel.
constexpr int half_of(int column, int h) { return (h + column) % kHalves; }

// Adds the products of line kLine of block b, from half h on, to the sums of each column. rows: the inputs of block b.
template <int kLine, int kRows, int kPanels, class Source, class Block>
QUIRE_INLINE void add_line(const Source* sources, int b, int h, const Block* const (&rows)[kRows],
                           Sums (&sums)[kRows][kPanels]) {
  LinePair w[kPanels];
  QUIRE_UNROLL
  for (int p = 0; p < kPanels; ++p) w[p] = sources[p].template line<kLine>(b, half_of(p, h));
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const Ints first = four_inputs(rows[r]->q + 8 * kLine), second = four_inputs(rows[r]->q + 8 * kLine + 4);
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) multiply<Source::kByteBits>(sums[r][p], w[p].low, first);
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) multiply<Source::kByteBits>(sums[r][p], w[p].high, second);
  }
}

// Adds block b, from half h on, to acc and low of each column. rows: the inputs of this block. zero: of the sources.
template <int kGroup, int kRows, int kPanels, class Source, class Scales>
QUIRE_INLINE void add_block(const Source* sources, const Scales* scales, int zero, int b, int h,
                            const Int8Block* const (&rows)[kRows], Floats (&acc)[kRows][kPanels],
                            Floats (&low)[kRows][kPanels]) {
  // With minima, unsigned codes have no zero point.
  constexpr bool kZeros = !(Scales::kMinima && Source::kUnsigned);
  constexpr bool kTwo = kGroup == 16 && !Source::kFolded;  // scales in a block
  constexpr bool kSupers = kGroup == 16 && Scales::kTwoLevels;
  Sums sums[kRows][kPanels];
  Floats first[kRows][kPanels];  // the scaled sum of the first of two groups
  const auto begin_group = [&](int g) __attribute__((always_inline)) {
    QUIRE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      Ints start = Ints::all(0);
      if constexpr (kZeros) {
        const int16_t* halves = rows[r]->half_sums;
        start = Ints::all(-zero * (kTwo ? halves[g] : halves[0] + halves[1]));
      }
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) sums[r][p] = sums_from(start);
    }
  };
  const auto line = [&]<int kLine>() __attribute__((always_inline)) {
    add_line<kLine>(sources, b, h, rows, sums);
    if constexpr (kLine % kLinesToWiden<Source::kByteBits> == kLinesToWiden<Source::kByteBits> - 1 ||
                  (kTwo && kLine % 2 == 1)) {
      QUIRE_UNROLL
      for (auto& of_row : sums) {
        QUIRE_UNROLL
        for (Sums& s : of_row) widen<Source::kByteBits>(s);
      }
    }
  };
  begin_group(0);
  line.template operator()<0>();
  line.template operator()<1>();
  if constexpr (kTwo) {
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const Floats scale = scales[p].template part<kGroup>(b, 0, half_of(p, h));
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) first[r][p] = mul(Floats::of(sums[r][p].wide), scale);
    }
    begin_group(1);
  }
  line.template operator()<2>();
  line.template operator()<3>();
  QUIRE_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    if constexpr (kTwo) {
      const Floats scale = scales[p].template part<kGroup>(b, 1, half_of(p, h));
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Floats sum = fma(Floats::of(sums[r][p].wide), scale, first[r][p]);
        acc[r][p] = fma(sum, Floats::all(rows[r]->scale), acc[r][p]);
      }
    } else if constexpr (Source::kFolded) {
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r)
        acc[r][p] = fma(Floats::of(sums[r][p].wide), Floats::all(rows[r]->scale), acc[r][p]);
    } else {
      const Floats scale = scales[p].template scale<kGroup>(b, 0, half_of(p, h));
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r)
        acc[r][p] = fma(Floats::of(sums[r][p].wide), mul(scale, Floats::all(rows[r]->scale)), acc[r][p]);
    }
  }
  if constexpr (Scales::kMinima && kSupers) {
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const Ints minima = scales[p].minimum_pair(b, half_of(p, h));
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints sum = dot_pairs(minima, all_pairs(rows[r]->half_sums));
        low[r][p] = fma(Floats::of(sum), Floats::all(rows[r]->scale), low[r][p]);
      }
    }
  } else if constexpr (Scales::kMinima) {
    QUIRE_UNROLL
    for (int g = 0; g < kBlockInputs / kGroup; ++g) {
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        const Floats minimum = scales[p].template minimum<kGroup>(b, g, half_of(p, h));
        QUIRE_UNROLL
        for (int r = 0; r < kRows; ++r)
          low[r][p] = fma(minimum, Floats::all(group_sum<kGroup>(*rows[r], g)), low[r][p]);
      }
    }
  }
}

// Adds to the sums one register of outputs (half h) of kPanels panels times kRows rows, over blocks [0, blocks) of
// `sources`. x: the rows from `row` on, from block 0 on.
template <int kRows, int kPanels, int kGroup, class Source, class Scales, class Prefetch>
QUIRE_INLINE void int8_tile(const Source* sources, const Scales* scales, int h, int blocks, const Int8Rows& x, int row,
                            const Int8Sums& out, Prefetch& prefetch) {
  constexpr bool kSupers = kGroup == 16 && Scales::kTwoLevels;
  const Int8Block* rows[kRows];
  Floats acc[kRows][kPanels], low[kRows][kPanels];
  const auto place = [h](int r, int p) { return p * kTileRows * kPanel + r * kPanel + h * kWidth; };
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x.row(row + r);
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (!kSupers) {
        acc[r][p] = out.first ? Floats::all(0.0f) : Floats::load(out.acc + place(r, p));
        if constexpr (Scales::kMinima) low[r][p] = out.first ? Floats::all(0.0f) : Floats::load(out.low + place(r, p));
      }
    }
  }
  const int zero = sources[0].zero();
  Prefetch ahead = prefetch;  // in registers
  const auto block = [&](int b) __attribute__((always_inline)) {
    ahead.next();
    add_block<kGroup>(sources, scales, zero, b, h, rows, acc, low);
    QUIRE_UNROLL
    for (const Int8Block*& at : rows) ++at;
  };
  if constexpr (kSupers) {
    for (int begin = 0; begin < blocks; begin += kSuperBlocks) {
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          acc[r][p] = Floats::all(0.0f);
          if constexpr (Scales::kMinima) low[r][p] = Floats::all(0.0f);
        }
      }
      const int end = begin + kSuperBlocks < blocks ? begin + kSuperBlocks : blocks;
      for (int b = begin; b < end; ++b) block(b);
      const bool start = out.first && begin == 0, finish = out.last && end == blocks;
      const auto add_scaled = [start](float* to, Floats sum, Floats scale) __attribute__((always_inline)) {
        sum = fma(sum, scale, start ? Floats::all(0.0f) : Floats::load(to));
        store(to, sum);
        return sum;
      };
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        const Floats super = scales[p].super(begin, h);
        QUIRE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Floats sum = add_scaled(out.acc + place(r, p), acc[r][p], super);
          if constexpr (Scales::kMinima) {
            const Floats part = add_scaled(out.low + place(r, p), low[r][p], scales[p].super_minimum(begin, h));
            if (finish) store(out.acc + place(r, p), add(sum, part));
          }
        }
      }
    }
    prefetch = ahead;
    return;
  }
  for (int b = 0; b < blocks; ++b) block(b);
  prefetch = ahead;
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      if constexpr (!Scales::kMinima) {
        store(out.acc + place(r, p), acc[r][p]);
      } else if (out.last) {
        store(out.acc + place(r, p), add(acc[r][p], low[r][p]));
      } else {
        store(out.acc + place(r, p), acc[r][p]), store(out.low + place(r, p), low[r][p]);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
