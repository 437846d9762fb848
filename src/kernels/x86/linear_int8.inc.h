// Products of panels with int8 activations.

#include "kernels/x86/panel_source.inc.h"

namespace quire {
namespace {

inline constexpr int kMaxRows = 8;  // rows that share a decoded block: on AVX-512 8 dots, 8 sums, 8 minima, 5 more

// One register of outputs (half h of the panel) times kRows rows, over blocks [0, blocks) of `source`. acc, low:
// [kRows][kPanel] sums so far, carried on; x: the rows' inputs of block 0.
template <int kRows, class Source>
QUIRE_INLINE void int8_half(const Source& source, int h, int blocks, const std::byte* x, size_t x_stride,
                            float* acc_out, float* low_out, Prefetch& prefetch) {
  const std::byte* rows[kRows];
  Floats acc[kRows], low[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = x + static_cast<size_t>(r) * x_stride;
    acc[r] = Floats::load(acc_out + r * kPanel + h * kWidth);
    if constexpr (Source::kHasMinimum) low[r] = Floats::load(low_out + r * kPanel + h * kWidth);
  }
  const auto row = [&](int r) __attribute__((always_inline)) { return reinterpret_cast<const Int8Block*>(rows[r]); };
  for (int b = 0; b < blocks; ++b) {
    prefetch.next();
    Sums sums[kRows];
    for (Sums& s : sums) s = no_sums();
    const auto add_line = [&]<int kLine>() __attribute__((always_inline)) {
      const LinePair w = source.template line<kLine>(b, h);
      for (int r = 0; r < kRows; ++r) {
        multiply<Source::kBits>(sums[r], w.low, four_inputs(row(r)->q + 8 * kLine));
        multiply<Source::kBits>(sums[r], w.high, four_inputs(row(r)->q + 8 * kLine + 4));
      }
      if constexpr (kLine % kLinesToWiden<Source::kBits> == kLinesToWiden<Source::kBits> - 1) {
        for (Sums& s : sums) widen<Source::kBits>(s);
      }
    };
    const auto add_group = [&](int g) __attribute__((always_inline)) {
      const Floats scale = source.scale(b, g, h);
      for (int r = 0; r < kRows; ++r) {
        Ints sum = sums[r].wide;
        if (source.zero() != 0) {
          const int32_t* halves = row(r)->half_sums;
          const int32_t total = Source::kGroup == 16 ? halves[g] : halves[0] + halves[1];
          sum = sub(sum, Ints::all(total * source.zero()));
        }
        acc[r] = fma(Floats::of(sum), mul(scale, Floats::all(row(r)->scale)), acc[r]);
      }
    };
    add_line.template operator()<0>();
    add_line.template operator()<1>();
    if constexpr (Source::kGroup == 16) {
      add_group(0);
      for (Sums& s : sums) s = no_sums();
    }
    add_line.template operator()<2>();
    add_line.template operator()<3>();
    add_group(Source::kGroup == 16 ? 1 : 0);
    if constexpr (Source::kHasMinimum) {
      const Floats minimum = source.minimum(b, h);
      for (int r = 0; r < kRows; ++r) low[r] = fma(minimum, Floats::all(row(r)->sum), low[r]);
    }
    for (const std::byte*& at : rows) at += sizeof(Int8Block);
  }
  for (int r = 0; r < kRows; ++r) {
    store(acc_out + r * kPanel + h * kWidth, acc[r]);
    if constexpr (Source::kHasMinimum) store(low_out + r * kPanel + h * kWidth, low[r]);
  }
}

// Group i of `groups`, of nearly equal size, of the rows.
template <class Source>
QUIRE_INLINE void int8_group(const Source& source, int blocks, const std::byte* x, size_t x_stride, int rows, int i,
                             int groups, float* acc, float* low, Prefetch& prefetch) {
  const int row = rows * i / groups, count = rows * (i + 1) / groups - row;
  const auto take = [&]<int kRows>() {
    for (int h = 0; h < kHalves; ++h) {
      int8_half<kRows>(source, h, blocks, x + static_cast<size_t>(row) * x_stride, x_stride, acc + row * kPanel,
                       low + row * kPanel, prefetch);
    }
  };
  switch (count) {
    case 1:
      return take.template operator()<1>();
    case 2:
      return take.template operator()<2>();
    case 3:
      return take.template operator()<3>();
    case 4:
      return take.template operator()<4>();
    case 5:
      return take.template operator()<5>();
    case 6:
      return take.template operator()<6>();
    case 7:
      return take.template operator()<7>();
    default:
      return take.template operator()<8>();
  }
}

// acc, low: [rows][kPanel], zeros; panel p times the rows is added to them.
template <TensorType kType>
void int8_sums(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, float* acc, float* low) {
  using From = Packed<kType>;
  const From from(m, p);
  const int blocks = m.blocks(), groups = (rows + kMaxRows - 1) / kMaxRows;
  Prefetch prefetch =
      groups * kHalves == 1 ? Prefetch::ahead(m, p, blocks) : Prefetch::next_panel(m, p, blocks * groups * kHalves);
  // 4 and 8 bits take less to decode than to load again.
  if (groups == 1 || From::kBits == 4 || From::kBits == 8) {
    for (int i = 0; i < groups; ++i) int8_group(from, blocks, x, x_stride, rows, i, groups, acc, low, prefetch);
    return;
  }
  // Instructions that multiply bytes into 32 bits do not care how many bits there are.
  Expanded<kSignedOffset != 0 ? 8 : From::kBits, From::kGroup, From::kHasMinimum> expanded;
  for (int b = 0; b < blocks; b += kExpandedBlocks) {
    const int end = b + kExpandedBlocks < blocks ? b + kExpandedBlocks : blocks;
    expanded.fill(from, b, end);
    for (int i = 0; i < groups; ++i) {
      int8_group(expanded, end - b, x + static_cast<size_t>(b) * sizeof(Int8Block), x_stride, rows, i, groups, acc, low,
                 prefetch);
    }
  }
}

// out [rows][kPanel] = panel p * rows.
template <TensorType kType>
void int8_panel(const PackedMatrix& m, int p, const std::byte* x, size_t x_stride, int rows, float* out) {
  alignas(64) float low[kTileRows * kPanel];
  __builtin_memset(out, 0, sizeof(float) * static_cast<size_t>(rows * kPanel));
  if (Packed<kType>::kHasMinimum) __builtin_memset(low, 0, sizeof(float) * static_cast<size_t>(rows * kPanel));
  int8_sums<kType>(m, p, x, x_stride, rows, out, low);
  if (!Packed<kType>::kHasMinimum) return;
  for (int i = 0; i < rows * kPanel; i += kWidth) store(out + i, add(Floats::load(out + i), Floats::load(low + i)));
}

}  // namespace
}  // namespace quire
