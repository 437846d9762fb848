// Products of panels with int8 activations.

#include "kernels/x86/panel_source.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// A tile: rows and panels whose sums stay in registers. AVX-512: two adjacent panels share each broadcast input,
// because one panel needs as many loads as products; 8 dots, 8 sums, 8 minima and 5 others fill the registers. AVX2:
// one register of outputs.
inline constexpr int kMostInt8Rows = 8;  // of a tile of one panel
inline constexpr int kFewestBeside = 5;  // rows from which two panels pay off: fewer are bound by memory
#if defined(__AVX512F__)
inline constexpr int kPanelsBeside = 2;
template <class Source>
inline constexpr int kRowsBeside = Source::kHasMinimum ? 4 : 6;  // of a tile of two
#else
inline constexpr int kPanelsBeside = 1;
template <class Source>
inline constexpr int kRowsBeside = kMostInt8Rows;
#endif

// Sums [rows][kPanel] of each panel, carried from one part of K to the next.
struct Int8Sums {
  float *acc, *low;  // low: nullptr if K is not cut
  bool begin, end;   // first part: start from zero; last part: acc becomes acc + low
  static constexpr size_t kPanelStride = kTileRows * kPanel;
};

// Adds to `out` one register of outputs (half h) of kPanels panels times kRows rows, over blocks [0, blocks) of
// `sources`. x: the rows' inputs of block 0.
template <int kRows, int kPanels, class Source>
QUIRE_INLINE void int8_tile(const Source* sources, int h, int blocks, const std::byte* x, size_t x_stride,
                            const Int8Sums& out, Prefetch& prefetch) {
  const std::byte* rows[kRows];
  Floats acc[kRows][kPanels], low[kRows][kPanels];
  const auto place = [h](int r, int p) {
    return p * Int8Sums::kPanelStride + static_cast<size_t>(r * kPanel + h * kWidth);
  };
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x + static_cast<size_t>(r) * x_stride;
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = out.begin ? Floats::all(0.0f) : Floats::load(out.acc + place(r, p));
      if constexpr (Source::kHasMinimum)
        low[r][p] = out.begin ? Floats::all(0.0f) : Floats::load(out.low + place(r, p));
    }
  }
  const auto row = [&](int r) __attribute__((always_inline)) { return reinterpret_cast<const Int8Block*>(rows[r]); };
  for (int b = 0; b < blocks; ++b) {
    prefetch.next();
    Sums sums[kRows][kPanels];
    const auto clear = [&]() __attribute__((always_inline)) {
      QUIRE_UNROLL
      for (auto& of_row : sums) {
        QUIRE_UNROLL
        for (Sums& s : of_row) s = no_sums();
      }
    };
    const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
      LinePair w[kPanels];
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) w[p] = sources[p].template line<kLine>(b, h);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints first = four_inputs(row(r)->q + 8 * kLine), second = four_inputs(row(r)->q + 8 * kLine + 4);
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) multiply<Source::kBits>(sums[r][p], w[p].low, first);
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) multiply<Source::kBits>(sums[r][p], w[p].high, second);
      }
      if constexpr (kLine % kLinesToWiden<Source::kBits> == kLinesToWiden<Source::kBits> - 1) {
        QUIRE_UNROLL
        for (auto& of_row : sums) {
          QUIRE_UNROLL
          for (Sums& s : of_row) widen<Source::kBits>(s);
        }
      }
    };
    const auto add_group = [&](int g) __attribute__((always_inline)) {
      Floats scale[kPanels];
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) scale[p] = sources[p].scale(b, g, h);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int32_t* halves = row(r)->half_sums;
        const int32_t total = Source::kGroup == 16 ? halves[g] : halves[0] + halves[1];
        const Ints excess = Ints::all(total * sources[0].zero());
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          const Ints sum = sources[p].zero() != 0 ? sub(sums[r][p].wide, excess) : sums[r][p].wide;
          acc[r][p] = fma(Floats::of(sum), mul(scale[p], Floats::all(row(r)->scale)), acc[r][p]);
        }
      }
    };
    clear();
    add_line.template operator()<0>();
    add_line.template operator()<1>();
    if constexpr (Source::kGroup == 16) {
      add_group(0);
      clear();
    }
    add_line.template operator()<2>();
    add_line.template operator()<3>();
    add_group(Source::kGroup == 16 ? 1 : 0);
    QUIRE_UNROLL
    for (int p = 0; Source::kHasMinimum && p < kPanels; ++p) {
      const Floats minimum = sources[p].minimum(b, h);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) low[r][p] = fma(minimum, Floats::all(row(r)->sum), low[r][p]);
    }
    for (const std::byte*& at : rows) at += sizeof(Int8Block);
  }
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      if (!Source::kHasMinimum) {
        store(out.acc + place(r, p), acc[r][p]);
      } else if (out.end) {
        store(out.acc + place(r, p), add(acc[r][p], low[r][p]));
      } else {
        store(out.acc + place(r, p), acc[r][p]), store(out.low + place(r, p), low[r][p]);
      }
    }
  }
}

// The rows are cut into `groups` groups of nearly equal size; this is group i.
template <int kPanels, class Source>
QUIRE_INLINE void int8_group(const Source* sources, int blocks, const std::byte* x, size_t x_stride, int rows, int i,
                             int groups, const Int8Sums& sums, Prefetch& prefetch) {
  const int row = rows * i / groups, count = rows * (i + 1) / groups - row;
  Int8Sums from = sums;
  from.acc += row * kPanel;
  if (from.low) from.low += row * kPanel;
  const auto take = [&]<int kRows>() {
    for (int h = 0; h < kHalves; ++h) {
      int8_tile<kRows, kPanels>(sources, h, blocks, x + static_cast<size_t>(row) * x_stride, x_stride, from, prefetch);
    }
  };
  with_count<kPanels == 1 ? kMostInt8Rows : kRowsBeside<Source>>(count, take);
}

// out [kPanels][kTileRows][kPanel] = panels p .. p + kPanels - 1 times the rows.
template <TensorType kType, int kPanels>
void int8_beside(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, float* out) {
  using From = Packed<kType>;
  // Instructions that multiply bytes into 32 bits work for quants of any number of bits.
  using Bytes = Expanded<kSignedOffset != 0 ? 8 : From::kBits, From::kGroup, From::kHasMinimum>;
  const From from[] = {{m, p}, {m, p + kPanels - 1}};
  constexpr int kRows = kPanels == 1 ? kMostInt8Rows : kRowsBeside<From>;
  const int blocks = m.blocks(), groups = (rows + kRows - 1) / kRows;
  Prefetch prefetch = groups * kHalves * kPanels == 1 ? Prefetch::ahead(m, p, blocks)
                                                      : Prefetch::next_panels(m, p, kPanels, blocks * groups * kHalves);
  // 4 and 8 bits are cheaper to decode again than to load decoded.
  if (groups == 1 || From::kBits == 4 || From::kBits == 8) {
    for (int i = 0; i < groups; ++i)
      int8_group<kPanels>(from, blocks, x, x_stride, rows, i, groups, {out, nullptr, true, true}, prefetch);
    return;
  }
  Bytes expanded[kPanels];
  alignas(64) float low[From::kHasMinimum ? kPanels * Int8Sums::kPanelStride : 1];
  for (int b = 0; b < blocks; b += kExpandedBlocks) {
    const int end = b + kExpandedBlocks < blocks ? b + kExpandedBlocks : blocks;
    for (int i = 0; i < kPanels; ++i) expanded[i].fill(from[i], b, end);
    for (int i = 0; i < groups; ++i) {
      int8_group<kPanels>(expanded, end - b, x + static_cast<size_t>(b) * sizeof(Int8Block), x_stride, rows, i, groups,
                          {out, low, b == 0, end == blocks}, prefetch);
    }
  }
}

// out [panels][kTileRows][kPanel] = panels p .. p + panels - 1 times the rows; panels <= kFloatPanels.
template <TensorType kType>
void int8_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows, float* out) {
  static_assert(kFloatPanels == kPanelsBeside);
  if (panels == kPanelsBeside && rows >= kFewestBeside)
    return int8_beside<kType, kPanelsBeside>(m, p, x, x_stride, rows, out);
  for (int i = 0; i < panels; ++i)
    int8_beside<kType, 1>(m, p + i, x, x_stride, rows, out + static_cast<size_t>(i) * Int8Sums::kPanelStride);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
