// Products of panels with int8 activations.

#include "kernels/x86/panel_source.inc.h"
#include "kernels/x86/scales.inc.h"

namespace quire::QUIRE_ISA {
namespace {

// A tile: rows and panels whose sums stay in registers. AVX-512: two adjacent panels share each broadcast input,
// because one panel needs as many loads as products; 12 dots, 12 sums and 6 others fill the registers, or 8 of each with
// minima. AVX2: one register of outputs.
inline constexpr int kMostInt8Rows = 8;  // of a tile of one panel
inline constexpr int kFewestBeside = 5;  // rows from which two panels pay off: fewer are bound by memory
#if defined(__AVX512F__)
inline constexpr int kPanelsBeside = 2;
template <bool kMinima>
inline constexpr int kRowsBeside = kMinima ? 4 : 6;
#else
inline constexpr int kPanelsBeside = 1;
template <bool kMinima>
inline constexpr int kRowsBeside = kMostInt8Rows;
#endif

// The sum of a group's inputs.
template <int kGroup>
QUIRE_INLINE float group_sum(const Int8Block& x, int g) {
  return kGroup == 16 ? x.scale * static_cast<float>(x.half_sums[g]) : x.sum;
}

// The scales of one panel's blocks, [blocks * groups][kPanel].
using ScaleMemory = float[2 * kScaleBlocks * kPanel];

// Sums [rows][kPanel] of each panel, kTileRows * kPanel apart: of products, and of minima times inputs. They are carried
// from one part of the blocks to the next; after the last part, acc holds their sum.
struct Int8Sums {
  float *acc, *low;
  bool first = true, last = true;  // of the parts

  Int8Sums from(int panel, int row) const {
    const int at = panel * kTileRows * kPanel + row * kPanel;
    return {acc + at, low + at, first, last};
  }
};

// Adds to the sums one register of outputs (half h) of kPanels panels times kRows rows, over blocks [0, blocks) of
// `sources`. x: the rows' inputs of block 0.
template <int kRows, int kPanels, int kGroup, class Source, class Scales>
QUIRE_INLINE void int8_tile(const Source* sources, const Scales* scales, int h, int blocks, const std::byte* x,
                            size_t x_stride, const Int8Sums& out, Prefetch& prefetch) {
  // With minima, unsigned codes have no zero point.
  constexpr bool kZeros = !(Scales::kMinima && Source::kUnsigned);
  const std::byte* rows[kRows];
  Floats acc[kRows][kPanels], low[kRows][kPanels];
  const auto place = [h](int r, int p) { return p * kTileRows * kPanel + r * kPanel + h * kWidth; };
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x + static_cast<size_t>(r) * x_stride;
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      acc[r][p] = out.first ? Floats::all(0.0f) : Floats::load(out.acc + place(r, p));
      if constexpr (Scales::kMinima) low[r][p] = out.first ? Floats::all(0.0f) : Floats::load(out.low + place(r, p));
    }
  }
  const int zero = sources[0].zero();
  Prefetch ahead = prefetch;  // in registers
  const auto row = [&](int r) __attribute__((always_inline)) { return reinterpret_cast<const Int8Block*>(rows[r]); };
  for (int b = 0; b < blocks; ++b) {
    ahead.next();
    Sums sums[kRows][kPanels];
    const auto begin_group = [&](int g) __attribute__((always_inline)) {
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int32_t* halves = row(r)->half_sums;
        const Ints start = Ints::all(kZeros ? -zero * (kGroup == 16 ? halves[g] : halves[0] + halves[1]) : 0);
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) sums[r][p] = sums_from(start);
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
        for (int p = 0; p < kPanels; ++p) multiply<Source::kByteBits>(sums[r][p], w[p].low, first);
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) multiply<Source::kByteBits>(sums[r][p], w[p].high, second);
      }
      if constexpr (kLine % kLinesToWiden<Source::kByteBits> == kLinesToWiden<Source::kByteBits> - 1 ||
                    (kGroup == 16 && kLine % 2 == 1)) {
        QUIRE_UNROLL
        for (auto& of_row : sums) {
          QUIRE_UNROLL
          for (Sums& s : of_row) widen<Source::kByteBits>(s);
        }
      }
    };
    const auto end_group = [&](int g) __attribute__((always_inline)) {
      Floats scale[kPanels];
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) scale[p] = scales[p].template scale<kGroup>(b, g, h);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p)
          acc[r][p] = fma(Floats::of(sums[r][p].wide), mul(scale[p], Floats::all(row(r)->scale)), acc[r][p]);
      }
      if constexpr (Scales::kMinima) {
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p) {
          const Floats minimum = scales[p].template minimum<kGroup>(b, g, h);
          QUIRE_UNROLL
          for (int r = 0; r < kRows; ++r)
            low[r][p] = fma(minimum, Floats::all(group_sum<kGroup>(*row(r), g)), low[r][p]);
        }
      }
    };
    begin_group(0);
    add_line.template operator()<0>();
    add_line.template operator()<1>();
    if constexpr (kGroup == 16) {
      end_group(0);
      begin_group(1);
    }
    add_line.template operator()<2>();
    add_line.template operator()<3>();
    end_group(kGroup == 16 ? 1 : 0);
    for (const std::byte*& at : rows) at += sizeof(Int8Block);
  }
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

// Adds panels p .. p + kPanels - 1 times the rows to the sums. At most kMostRows rows at a time; kExpand: over bytes that
// are decoded once for all of them.
template <Codes kCodes, int kGroup, int kPanels, int kMostRows, bool kExpand, bool kMinima>
void int8_blocks(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, const Int8Sums& out) {
  // Instructions that multiply bytes into 32 bits work for codes of any number of bits.
  using From = PackedCodes<kCodes>;
  using Bytes = ByteBlocks<kSignedOffset != 0 ? 8 : From::kByteBits, From::kUnsigned>;
  constexpr int kBlocks = kExpand ? kExpandedBlocks : kScaleBlocks;
  alignas(64) ScaleMemory scales[kPanels], minima[kMinima ? kPanels : 1];
  Bytes expanded[kExpand ? kPanels : 1];
  const int blocks = m.blocks(), calls = blocks * ((rows + kMostRows - 1) / kMostRows) * kHalves;
  Prefetch prefetch =
      calls == blocks && kPanels == 1 ? Prefetch::ahead(m, p, calls) : Prefetch::next_panels(m, p, kPanels, calls);
  for (int b = 0; b < blocks; b += kBlocks) {
    const int end = b + kBlocks < blocks ? b + kBlocks : blocks;
    const std::byte* inputs = x + static_cast<size_t>(b) * sizeof(Int8Block);
    DecodedScales<kMinima> decoded[kPanels];
    for (int i = 0; i < kPanels; ++i) {
      decode_scales(m, p + i, b, end, scales[i]);
      if constexpr (kMinima) decode_minima(m, p + i, b, end, scales[i], minima[i]);
      decoded[i] = {scales[i], minima[kMinima ? i : 0]};
    }
    const From from[] = {{m, p, b}, {m, p + kPanels - 1, b}};
    const Int8Sums sums{out.acc, out.low, b == 0, end == blocks};
    if constexpr (kExpand) {
      for (int i = 0; i < kPanels; ++i) expanded[i].fill(from[i], end - b);
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
        constexpr int kMostRows = kFew ? kFewestBeside - 1 : kRowsBeside<Scales::kMinima>;
        const Scales scales[] = {first, {m, p + kPanels - 1}};
        const PackedCodes<kCodes> from[] = {{m, p, 0}, {m, p + kPanels - 1, 0}};
        const int calls = m.blocks() * ((rows + kMostRows - 1) / kMostRows) * kHalves;
        Prefetch prefetch =
            kFew && kHalves == 1 ? Prefetch::ahead(m, p, calls) : Prefetch::next_panels(m, p, kPanels, calls);
        int8_rows<kPanels, kMostRows, kGroup>(from, scales, m.blocks(), x, x_stride, rows, out, prefetch);
      });
}

// Rows of one scale: half h of kPanels panels times kRows rows, to out [kPanels][kTileRows][kPanel].
template <int kRows, int kPanels>
QUIRE_INLINE void int8_row_tile(const PackedCodes<Codes::kI8>* sources, const ScaleMemory* scales, int h, int blocks,
                                const std::byte* x, size_t x_stride, float* out, Prefetch& prefetch) {
  const Int8RowBlock* rows[kRows];
  Sums sums[kRows][kPanels];
  QUIRE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    rows[r] = reinterpret_cast<const Int8RowBlock*>(x + static_cast<size_t>(r) * x_stride);
    int32_t total = 0;
    if (sources[0].zero() != 0) {
      for (int b = 0; b < blocks; ++b) total += rows[r][b].sum;
    }
    QUIRE_UNROLL
    for (int p = 0; p < kPanels; ++p) sums[r][p] = sums_from(Ints::all(-sources[0].zero() * total));
  }
  for (int b = 0; b < blocks; ++b) {
    prefetch.next();
    const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
      LinePair w[kPanels];
      QUIRE_UNROLL
      for (int p = 0; p < kPanels; ++p) w[p] = sources[p].template line<kLine>(b, h);
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints first = four_inputs(rows[r][b].q + 8 * kLine), second = four_inputs(rows[r][b].q + 8 * kLine + 4);
        QUIRE_UNROLL
        for (int p = 0; p < kPanels; ++p)
          multiply<8>(sums[r][p], w[p].low, first), multiply<8>(sums[r][p], w[p].high, second);
      }
    };
    add_line.template operator()<0>(), add_line.template operator()<1>();
    add_line.template operator()<2>(), add_line.template operator()<3>();
  }
  for (int p = 0; p < kPanels; ++p) {
    const Floats scale = Floats::load(scales[p] + h * kWidth);
    for (int r = 0; r < kRows; ++r) {
      float* to = out + p * kTileRows * kPanel + r * kPanel + h * kWidth;
      store(to, mul(Floats::of(sums[r][p].wide), mul(scale, Floats::all(rows[r]->scale))));
    }
  }
}

// Adds the outliers of `rows` rows to the outputs of panel p.
QUIRE_INLINE void add_outliers(const PackedMatrix& m, int p, const float* scales, const std::byte* x, size_t x_stride,
                               int rows, float* out) {
  constexpr int kPlace[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // of an input in kPairOrder
  for (int r = 0; r < rows; ++r) {
    const auto* row = reinterpret_cast<const Int8RowBlock*>(x + static_cast<size_t>(r) * x_stride);
    for (int b = 0; b < m.blocks(); ++b) {
      for (uint32_t left = row[b].outliers; left != 0; left &= left - 1) {
        const int i = __builtin_ctz(left), place = kPlace[i % 8];
        const std::byte* codes = m.panel(p) + m.layout.codes + static_cast<size_t>(b) * m.layout.block_bytes +
                                 128 * (i / 8) + 64 * (place / 4) + place % 4;
        alignas(64) float weights[kPanel];
        for (int n = 0; n < kPanel; ++n) weights[n] = static_cast<float>(static_cast<int8_t>(codes[4 * n]));
        const Floats input = Floats::all(f16_to_f32(row[b].x[i]));
        for (int h = 0; h < kHalves; ++h) {
          float* to = out + r * kPanel + h * kWidth;
          const Floats weight = mul(Floats::load(scales + h * kWidth), Floats::load(weights + h * kWidth));
          store(to, fma(input, weight, Floats::load(to)));
        }
      }
    }
  }
}

void int8_row_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows,
                     float* out) {
  using From = PackedCodes<Codes::kI8>;
  alignas(64) ScaleMemory scales[kPanelsBeside];
  for (int i = 0; i < panels; ++i) decode_scales(m, p + i, 0, 1, scales[i]);
  const auto run = [&]<int kPanels, int kMostRows>(int first) __attribute__((always_inline)) {
    const From from[] = {{m, p + first, 0}, {m, p + first + kPanels - 1, 0}};
    const int tiles = (rows + kMostRows - 1) / kMostRows, calls = m.blocks() * tiles * kHalves;
    Prefetch prefetch = calls == m.blocks() && kPanels == 1 ? Prefetch::ahead(m, p + first, calls)
                                                            : Prefetch::next_panels(m, p + first, kPanels, calls);
    for (int i = 0; i < tiles; ++i) {
      const int row = rows * i / tiles, count = rows * (i + 1) / tiles - row;
      with_count<kMostRows>(count, [&]<int kRows>() {
        for (int h = 0; h < kHalves; ++h)
          int8_row_tile<kRows, kPanels>(from, scales + first, h, m.blocks(), x + static_cast<size_t>(row) * x_stride,
                                        x_stride, out + first * kTileRows * kPanel + row * kPanel, prefetch);
      });
    }
  };
  if (panels == kPanelsBeside && rows >= kFewestBeside) {
    run.template operator()<kPanelsBeside, kRowsBeside<false>>(0);
  } else {
    for (int i = 0; i < panels; ++i) run.template operator()<1, kMostInt8Rows>(i);
  }
  for (int i = 0; i < panels; ++i) add_outliers(m, p + i, scales[i], x, x_stride, rows, out + i * kTileRows * kPanel);
}

// out [panels][kTileRows][kPanel] = panels p .. p + panels - 1 times the rows; panels <= kFloatPanels.
template <Codes kCodes, int kGroup, bool kMinima>
void int8_panels(const PackedMatrix& m, int p, int panels, const std::byte* x, size_t x_stride, int rows, float* out) {
  static_assert(kFloatPanels == kPanelsBeside);
  // Plain 4 and 8 bits are cheaper to decode again than to load decoded.
  constexpr bool kExpand = !((kCodes == Codes::kU4 || kCodes == Codes::kI8) && kGroup == kBlockInputs);
  // All formats with these codes are usual ones.
  constexpr bool kUsual = kCodes == Codes::kU5 || kCodes == Codes::kU6;
  alignas(64) float low[kMinima ? kPanelsBeside * kTileRows * kPanel : 1];
  const Int8Sums sums{out, low};
  if (panels == kPanelsBeside && rows >= kFewestBeside) {
    bool done = false;
    if constexpr (!kExpand) done = int8_direct<kCodes, kGroup, false>(m, p, x, x_stride, rows, sums);
    if (!done)
      int8_blocks<kCodes, kGroup, kPanelsBeside, kRowsBeside<kMinima>, kExpand, kMinima>(m, p, x, x_stride, rows, sums);
  } else {
    for (int i = 0; i < panels; ++i) {
      const Int8Sums of_panel = sums.from(i, 0);
      if (rows >= kFewestBeside) {
        int8_blocks<kCodes, kGroup, 1, kMostInt8Rows, kExpand, kMinima>(m, p + i, x, x_stride, rows, of_panel);
      } else if (!int8_direct<kCodes, kGroup, true>(m, p + i, x, x_stride, rows, of_panel)) {
        if constexpr (!kUsual)
          int8_blocks<kCodes, kGroup, 1, kFewestBeside - 1, false, kMinima>(m, p + i, x, x_stride, rows, of_panel);
      }
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
