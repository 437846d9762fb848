// The scales and minima of panels as floats. A product decodes those of some blocks at a time, so that its loops know
// nothing of how they are stored.
#pragma once

#include "kernels/kernels.h"
#include "kernels/vector/alphabet.h"

namespace quire::QUIRE_ISA {
namespace {

inline constexpr int kScaleBlocks = 64;  // blocks whose scales are decoded together: at most 8 KiB
inline constexpr int kSuperBlocks = kSuperInputs / kBlockInputs;

// Groups that begin in a block: one or two; groups of several blocks count in each of them.
QUIRE_INLINE int groups_in_block(const PanelFormat& f) { return f.group == 16 ? 2 : 1; }

// out [blocks * groups][kPanel] = decode(group, half) for each group of blocks [begin, end).
template <class Decode>
QUIRE_INLINE void for_each_group(const PanelFormat& f, int begin, int end, float* out, Decode decode) {
  const auto put = [&](int group) __attribute__((always_inline)) {
    for (int half = 0; half < kHalves; ++half, out += kWidth) store(out, decode(group, half));
  };
  if (f.group <= kBlockInputs) {
    const int groups = groups_in_block(f);
    for (int group = begin * groups; group < end * groups; ++group) put(group);
    return;
  }
  const int blocks = f.group / kBlockInputs;
  int group = begin / blocks, left = blocks - begin % blocks;
  for (int b = begin; b < end; ++b) {
    put(group);
    if (--left == 0) ++group, left = blocks;
  }
}

// The entry of kWidth outputs in a part of a panel, whose numbers have `bytes` each.
QUIRE_INLINE const std::byte* entry_of(const std::byte* part, int entry, int half, int bytes) {
  return part + static_cast<ptrdiff_t>((entry * kPanel + half * kWidth) * bytes);
}
// Which float16 a group is under: 16 or 8 groups share one.
QUIRE_INLINE int group_super(const PanelFormat& f, int group) { return group >> (f.group == 16 ? 4 : 3); }

// The scales of kWidth outputs in a group.
template <ScaleKind kKind>
QUIRE_INLINE Floats group_scale(const PackedMatrix& m, const std::byte* panel, int group, int half) {
  const std::byte* scales = panel + m.layout.scales;
  if constexpr (kKind == ScaleKind::kF16) return scales_f16(entry_of(scales, group, half, 2));
  if constexpr (kKind == ScaleKind::kF32)
    return Floats::load(reinterpret_cast<const float*>(entry_of(scales, group, half, 4)));
  if constexpr (kKind == ScaleKind::kE8M0) {  // half_e8m0_to_f32()
    const Ints e = scales_u8(entry_of(scales, group, half, 1)), one = Ints::all(1);
    return choose(bits(shift_left<23>(sub(e, one))), bits(shift_left<21>(add(e, one))), Floats::of(e),
                  Floats::all(2.0f));
  }
  if constexpr (kKind == ScaleKind::kE4M3)
    return mul(e4m3_byte<0>(scales_u8(entry_of(scales, group, half, 1))), Floats::all(m.factor));
  if constexpr (kKind == ScaleKind::kSuper) {
    const std::byte* supers = panel + m.layout.supers;
    const Floats super =
        mul(scales_f16(entry_of(supers, group_super(m.format, group), half, 2)), Floats::all(m.factor));
    return mul(super, scales_i8(entry_of(scales, group, half, 1)));
  }
  return Floats::all(0.0f);
}
// Calls run.operator()<kind>().
template <class Run>
QUIRE_INLINE void with_scale_kind(ScaleKind kind, const Run& run) {
  switch (kind) {
    case ScaleKind::kNone:
      return;
    case ScaleKind::kF16:
      return run.template operator()<ScaleKind::kF16>();
    case ScaleKind::kF32:
      return run.template operator()<ScaleKind::kF32>();
    case ScaleKind::kE8M0:
      return run.template operator()<ScaleKind::kE8M0>();
    case ScaleKind::kE4M3:
      return run.template operator()<ScaleKind::kE4M3>();
    case ScaleKind::kSuper:
      return run.template operator()<ScaleKind::kSuper>();
  }
}

// Their minima. scale: what group_scale() gives.
template <ZeroKind kKind>
QUIRE_INLINE Floats group_minimum(const PackedMatrix& m, const std::byte* panel, int group, int half, Floats scale) {
  const std::byte* minima = panel + m.layout.minima;
  if constexpr (kKind == ZeroKind::kF16) return scales_f16(entry_of(minima, group, half, 2));
  if constexpr (kKind == ZeroKind::kF32)
    return Floats::load(reinterpret_cast<const float*>(entry_of(minima, group, half, 4)));
  if constexpr (kKind == ZeroKind::kSuper) {
    const std::byte* supers = panel + m.layout.super_minima;
    return negate(mul(scales_f16(entry_of(supers, group_super(m.format, group), half, 2)),
                      scales_i8(entry_of(minima, group, half, 1))));
  }
  if constexpr (kKind == ZeroKind::kInteger) return negate(mul(scale, scales_i8(entry_of(minima, group, half, 1))));
  return Floats::all(0.0f);
}
template <class Run>
QUIRE_INLINE void with_zero_kind(ZeroKind kind, const Run& run) {
  switch (kind) {
    case ZeroKind::kConstant:
      return;
    case ZeroKind::kF16:
      return run.template operator()<ZeroKind::kF16>();
    case ZeroKind::kF32:
      return run.template operator()<ZeroKind::kF32>();
    case ZeroKind::kSuper:
      return run.template operator()<ZeroKind::kSuper>();
    case ZeroKind::kInteger:
      return run.template operator()<ZeroKind::kInteger>();
  }
}

// The scales of panel p, blocks [begin, end).
[[gnu::noinline]] void decode_scales(const PackedMatrix& m, int p, int begin, int end, float* out) {
  const std::byte* panel = m.panel(p);
  with_scale_kind(
      m.format.scale, [&]<ScaleKind kKind>() __attribute__((always_inline)) {
        for_each_group(
            m.format, begin, end,
            out, [&](int g, int half) __attribute__((always_inline)) { return group_scale<kKind>(m, panel, g, half); });
      });
}

// The minima, in formats that have them. scales: what decode_scales() wrote.
[[gnu::noinline]] void decode_minima(const PackedMatrix& m, int p, int begin, int end, const float* scales,
                                     float* out) {
  const std::byte* panel = m.panel(p);
  with_zero_kind(
      m.format.zeros, [&]<ZeroKind kKind>() __attribute__((always_inline)) {
        for_each_group(
            m.format, begin, end, out, [&](int g, int half) __attribute__((always_inline)) {
              const Floats scale = Floats::load(scales);
              scales += kWidth;
              return group_minimum<kKind>(m, panel, g, half, scale);
            });
      });
}

// What follows takes scales of two levels apart, in groups of 16: of blocks [begin, end), which begin with a float16 of
// their own. The float16s of `part`, times `factor`, go to out [of 256 inputs][kPanel].
QUIRE_INLINE void decode_supers(const std::byte* part, float factor, int begin, int end, float* out) {
  const int first = begin / kSuperBlocks * kHalves, last = (end + kSuperBlocks - 1) / kSuperBlocks * kHalves;
  for (int i = first; i < last; ++i, out += kWidth)
    store(out, mul(scales_f16(part + static_cast<ptrdiff_t>(i) * kWidth * 2), Floats::all(factor)));
}

// out: the integers, [blocks][2][kPanel]; nullptr: not needed.
[[gnu::noinline, maybe_unused]] void decode_two_levels(const PackedMatrix& m, int p, int begin, int end, float* out,
                                                       float* supers) {
  const std::byte* from = m.panel(p) + m.layout.scales;
  for (int i = begin * 2 * kHalves; out && i < end * 2 * kHalves; ++i, out += kWidth)
    store(out, scales_i8(from + static_cast<ptrdiff_t>(i) * kWidth));
  decode_supers(m.panel(p) + m.layout.supers, m.factor, begin, end, supers);
}

// The minima of a block's groups as pairs of 16 bits, for dot_pairs().
QUIRE_INLINE Ints minimum_pair(const std::byte* minima, int b, int half) {
  const auto of_group = [&](int g) __attribute__((always_inline)) {
    return integers_i8(minima + static_cast<ptrdiff_t>((2 * b + g) * kPanel + half * kWidth));
  };
  return bor(band(of_group(0), Ints::all(0xffff)), shift_left<16>(of_group(1)));
}
// pairs: [blocks][kPanel], in the memory of floats.
[[gnu::noinline, maybe_unused]] void decode_minimum_pairs(const PackedMatrix& m, int p, int begin, int end,
                                                          float* pairs, float* supers) {
  for (int b = begin; b < end; ++b) {
    for (int half = 0; half < kHalves; ++half, pairs += kWidth)
      store(pairs, bits(minimum_pair(m.panel(p) + m.layout.minima, b, half)));
  }
  decode_supers(m.panel(p) + m.layout.super_minima, -1.0f, begin, end, supers);
}

// low [rows][kPanel] += minima [blocks * groups][kPanel] times the sums of the inputs: sum(block of a row, group). x: the
// rows' first blocks, of block_bytes each.
template <class Sum>
QUIRE_INLINE void add_low(const float* minima, int blocks, int groups, const std::byte* x, size_t x_stride,
                          size_t block_bytes, int rows, float* low, Sum sum) {
  const auto run = [&]<int kRows>(int row) __attribute__((always_inline)) {
    for (int half = 0; half < kHalves; ++half) {
      Floats acc[kRows];
      const std::byte* inputs[kRows];
      float* out = low + row * kPanel + half * kWidth;
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r] = Floats::load(out + r * kPanel);
        inputs[r] = x + static_cast<size_t>(row + r) * x_stride;
      }
      const float* at = minima + half * kWidth;
      for (int b = 0; b < blocks; ++b) {
        for (int g = 0; g < groups; ++g, at += kPanel) {
          const Floats minimum = Floats::load(at);
          QUIRE_UNROLL
          for (int r = 0; r < kRows; ++r) acc[r] = fma(minimum, Floats::all(sum(inputs[r], g)), acc[r]);
        }
        QUIRE_UNROLL
        for (int r = 0; r < kRows; ++r) inputs[r] += block_bytes;
      }
      QUIRE_UNROLL
      for (int r = 0; r < kRows; ++r) store(out + r * kPanel, acc[r]);
    }
  };
  int row = 0;
  for (; row + 8 <= rows; row += 8) run.template operator()<8>(row);
  for (; row + 4 <= rows; row += 4) run.template operator()<4>(row);
  for (; row < rows; ++row) run.template operator()<1>(row);
}

// Likewise where scales have two levels. pairs: minimum_pair() of each block; supers: of each 256 inputs.
QUIRE_INLINE void add_two_level_low(const float* pairs, const float* supers, int blocks, const std::byte* x,
                                    size_t x_stride, int rows, float* low) {
  for (int r = 0; r < rows; ++r) {
    const auto* row = reinterpret_cast<const Int8Block*>(x + static_cast<size_t>(r) * x_stride);
    for (int half = 0; half < kHalves; ++half) {
      float* out = low + r * kPanel + half * kWidth;
      Floats sum = Floats::load(out);
      for (int begin = 0; begin < blocks; begin += kSuperBlocks) {
        Floats part = Floats::all(0.0f);
        for (int b = begin; b < begin + kSuperBlocks && b < blocks; ++b) {
          const Ints minimum = dot_pairs(Ints::load(pairs + b * kPanel + half * kWidth), all_pairs(row[b].half_sums));
          part = fma(Floats::of(minimum), Floats::all(row[b].scale), part);
        }
        sum = fma(part, Floats::load(supers + begin / kSuperBlocks * kPanel + half * kWidth), sum);
      }
      store(out, sum);
    }
  }
}

// Where a product finds the scales and minima of its panel: decoded before, or, for few rows, in the panel itself. Few
// rows are bound by the instructions of decoding, if not by memory, and need each scale but once.
//
// In groups of 16, part() is the scale, or its integer if there are two levels (kTwoLevels): super() is what multiplies
// the sum of 256 inputs. Likewise minimum_pair() and super_minimum().
template <bool kMinimaOf, bool kTwoLevelsOf = false>
struct DecodedScales {
  static constexpr bool kMinima = kMinimaOf, kTwoLevels = kTwoLevelsOf;
  const float *scales, *minima, *supers = nullptr, *super_minima = nullptr;

  template <int kGroup>
  [[gnu::always_inline]] Floats part(int b, int g, int half) const {
    return scale<kGroup>(b, g, half);
  }
  [[gnu::always_inline]] Floats super(int b, int half) const {
    return Floats::load(supers + b / kSuperBlocks * kPanel + half * kWidth);
  }
  [[gnu::always_inline]] Ints minimum_pair(int b, int half) const {
    return Ints::load(minima + b * kPanel + half * kWidth);
  }
  [[gnu::always_inline]] Floats super_minimum(int b, int half) const {
    return Floats::load(super_minima + b / kSuperBlocks * kPanel + half * kWidth);
  }
  template <int kGroup>
  [[gnu::always_inline]] Floats scale(int b, int g, int half) const {
    return Floats::load(scales + (b * (kGroup == 16 ? 2 : 1) + g) * kPanel + half * kWidth);
  }
  template <int kGroup>
  [[gnu::always_inline]] Floats minimum(int b, int g, int half) const {
    return Floats::load(minima + (b * (kGroup == 16 ? 2 : 1) + g) * kPanel + half * kWidth);
  }
};
template <ScaleKind kScale, ZeroKind kZeros>
class PanelScales {
 public:
  static constexpr bool kMinima = kZeros != ZeroKind::kConstant, kTwoLevels = kScale == ScaleKind::kSuper;

  [[gnu::always_inline]] PanelScales(const PackedMatrix& m, int p)
      : panel_(m.panel(p)),
        scales_(panel_ + m.layout.scales),
        minima_(panel_ + m.layout.minima),
        supers_(panel_ + m.layout.supers),
        super_minima_(panel_ + m.layout.super_minima),
        factor_(m.factor) {}

  template <int kGroup>
  [[gnu::always_inline]] Floats scale(int b, int g, int half) const {
    const int group = kGroup == 16 ? 2 * b + g : b;
    if constexpr (kScale == ScaleKind::kF16) return scales_f16(entry_of(scales_, group, half, 2));
    return mul(super(b, half), scales_i8(entry_of(scales_, group, half, 1)));
  }
  template <int kGroup>
  [[gnu::always_inline]] Floats part(int b, int g, int half) const {
    return scales_i8(entry_of(scales_, kGroup == 16 ? 2 * b + g : b, half, 1));
  }
  [[gnu::always_inline]] Floats super(int b, int half) const {
    return mul(scales_f16(entry_of(supers_, b / kSuperBlocks, half, 2)), Floats::all(factor_));
  }
  [[gnu::always_inline]] Ints minimum_pair(int b, int half) const { return QUIRE_ISA::minimum_pair(minima_, b, half); }
  [[gnu::always_inline]] Floats super_minimum(int b, int half) const {
    return negate(scales_f16(entry_of(super_minima_, b / kSuperBlocks, half, 2)));
  }
  template <int kGroup>
  [[gnu::always_inline]] Floats minimum(int b, int g, int half) const {
    const int group = kGroup == 16 ? 2 * b + g : b;
    if constexpr (kZeros == ZeroKind::kF16) return scales_f16(entry_of(minima_, group, half, 2));
    return mul(super_minimum(b, half), scales_i8(entry_of(minima_, group, half, 1)));
  }

 private:
  const std::byte *panel_, *scales_, *minima_, *supers_, *super_minima_;
  float factor_;
};

// Whether all formats with these codes and scales are usual ones.
template <Codes kCodes, bool kTwoLevels>
inline constexpr bool kUsualScales = kCodes == Codes::kU5 || kCodes == Codes::kU6 || kTwoLevels;

// Calls run(scales of panel p), if the format is one of the usual for its codes, with minima or without; otherwise
// returns false.
template <Codes kCodes, int kGroup, bool kMinima, bool kSupers, class Run>
QUIRE_INLINE bool with_usual_scales(const PackedMatrix& m, int p, const Run& run) {
  constexpr bool kTwoLevels =
      kGroup == 16 ? kCodes == Codes::kU2 || kCodes == Codes::kU3 || kCodes == Codes::kU6 || kCodes == Codes::kTable4
                   : kCodes == Codes::kU4 || kCodes == Codes::kU5 || kCodes == Codes::kTable4;
  constexpr bool kOneLevel = kGroup == kBlockInputs && (kCodes == Codes::kU4 || kCodes == Codes::kU5 ||
                                                        kCodes == Codes::kI8 || kCodes == Codes::kTable4);
  constexpr bool kMinimaExist = kCodes == Codes::kU2 || kCodes == Codes::kU4 || kCodes == Codes::kU5;
  // Two-level scales of codes that may have minima always have them.
  constexpr ZeroKind kZeros = !kMinima ? ZeroKind::kConstant : ZeroKind::kF16,
                     kSuperZeros = kMinimaExist ? ZeroKind::kSuper : ZeroKind::kConstant;
  const PanelFormat& f = m.format;
  if (f.group != kGroup) return false;
  if constexpr (kOneLevel && (kMinimaExist || !kMinima)) {
    if (f.scale == ScaleKind::kF16 && f.zeros == kZeros) return run(PanelScales<ScaleKind::kF16, kZeros>(m, p)), true;
  }
  if constexpr (kSupers && kTwoLevels && kMinimaExist == kMinima) {
    if (f.scale == ScaleKind::kSuper && f.zeros == kSuperZeros)
      return run(PanelScales<ScaleKind::kSuper, kSuperZeros>(m, p)), true;
  }
  return false;
}

template <Codes kCodes, int kGroup, bool kSupers, class Run>
QUIRE_INLINE bool with_panel_scales(const PackedMatrix& m, int p, const Run& run) {
  return with_usual_scales<kCodes, kGroup, false, kSupers>(m, p, run) ||
         with_usual_scales<kCodes, kGroup, true, kSupers>(m, p, run);
}

}  // namespace
}  // namespace quire::QUIRE_ISA
