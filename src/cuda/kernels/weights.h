// Packed weights (kernels/packed.h) as kernels for GPUs see them: scales, and how a sum over inputs is cut.
//
// A warp multiplies one panel at a time. Its 16 outputs are the rows of multiply_bf16()'s matrix `a`, so that weights go from
// memory to registers and nowhere else. With g = lane() / 4 and i = lane() % 4, a lane has the weights of outputs 2g (row g of
// `a`) and 2g + 1 (row g + 8), inputs 8i .. 8i+7 of each block of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Two bf16 numbers 128: a code in their low bits adds to them.
inline constexpr uint32_t kCodeExponents = 0x43004300;

// A packed matrix without its address. Offsets are bytes from the beginning of a panel.
struct WeightShape {
  int32_t panel_bytes = 0;
  int32_t super_minima = 0, scales = 0, minima = 0, codes = 0;  // PanelLayout; the supers are at 0
  int32_t rows = 0, blocks = 0;
  int32_t group_blocks = 0;       // blocks that share a scale; 1 if the halves of a block have their own
  float factor = 1;               // PackedMatrix::factor
  uint32_t zero = 0;              // two bf16 numbers: 128 + PanelFormat::zero, for kU2 .. kU6
  Global<const uint32_t> tables;  // kTable4, kFloat4: CodeTables
  ScaleKind scale = ScaleKind::kNone;
  ZeroKind zeros = ZeroKind::kConstant;
  bool halves = false;     // groups are 16 inputs
  int8_t group_shift = 0;  // log2(group_blocks); -1: it is no power of two
  // kCodeExponents. An argument, because an instruction that masks a code and adds them takes but one constant.
  uint32_t exponents = kCodeExponents;
};

// ---- The definition of a sum
//
// The blocks of a row of weights are cut into kSplits ranges; with fewer blocks some are empty. In a range, block by block:
//
//   no scales    acc = products of the block added to acc                  (multiply_block(), kernels/products.h)
//   scales       t   = products of the block's codes added to 0
//                acc = fma(t, scale, acc), with minima then acc = fma(minimum, sum of the block's inputs, acc)
//   halves       likewise for inputs 0 .. 15, then 16 .. 31
//
// and the ranges' sums are added in order: ((r0 + r1) + r2) + ... All kernels compute this, so a row's bits do not depend on
// which of them was chosen, nor on the rows next to it.
inline constexpr int kSplits = 8;

// The first block of a range; range kSplits: the end of the last. Long rows are cut at multiples of four blocks, which kernels
// load together.
DEVICE int range_begin(int blocks, int range) {
  if (blocks < 128) return blocks * range / kSplits;
  const int begin = (blocks + 3) / 4 * range / kSplits * 4;
  return begin < blocks ? begin : blocks;
}

// No range has more.
constexpr int most_range_blocks(int blocks) {
  return blocks < 128 ? (blocks + kSplits - 1) / kSplits : (blocks + 4 * kSplits - 1) / (4 * kSplits) * 4;
}

// ---- Scales

// Scales and minima of outputs 2g and 2g + 1, as they are in memory.
struct ScaleWords {
  uint32_t scale[2], minimum[2], super, super_minimum;
};
struct Scales {
  float scale[2], minimum[2];  // of the two outputs
};

DEVICE int group_of(const WeightShape& w, int block) {
  return w.group_shift >= 0 ? block >> w.group_shift : block / w.group_blocks;
}

DEVICE bool minima_of(const WeightShape& w) { return w.zeros != ZeroKind::kConstant; }

// Of a block, or of half of it if w.halves. panel: the panel's address.
DEVICE void load_scales(const WeightShape& w, Global<const uint8_t> panel, int block, int half, int g, ScaleWords& to) {
  const int group = w.halves ? 2 * block + half : group_of(w, block);
  const int entry = group * kPanel + 2 * g, super_entry = block / (kSuperInputs / kBlockInputs) * kPanel + 2 * g;
  switch (w.scale) {
    case ScaleKind::kNone:
      break;
    case ScaleKind::kF16:
      to.scale[0] = load<1>(panel + (w.scales + 2 * entry)).w[0];
      break;
    case ScaleKind::kF32: {
      const Words<2> words = load<2>(panel + (w.scales + 4 * entry));
      to.scale[0] = words.w[0], to.scale[1] = words.w[1];
      break;
    }
    default:
      to.scale[0] = cast<const uint16_t>(panel + (w.scales + entry))[0];
      if (w.scale == ScaleKind::kSuper) to.super = load<1>(panel + 2 * super_entry).w[0];
  }
  switch (w.zeros) {
    case ZeroKind::kConstant:
      break;
    case ZeroKind::kF16:
      to.minimum[0] = load<1>(panel + (w.minima + 2 * entry)).w[0];
      break;
    case ZeroKind::kF32: {
      const Words<2> words = load<2>(panel + (w.minima + 4 * entry));
      to.minimum[0] = words.w[0], to.minimum[1] = words.w[1];
      break;
    }
    default:
      to.minimum[0] = cast<const uint16_t>(panel + (w.minima + entry))[0];
      if (w.zeros == ZeroKind::kSuper) to.super_minimum = load<1>(panel + (w.super_minima + 2 * super_entry)).w[0];
  }
}

DEVICE float int8_number(uint32_t byte) { return static_cast<float>(static_cast<int8_t>(byte)); }
DEVICE float e8m0_number(uint32_t byte) {  // half_e8m0_to_f32()
  return bits_float(byte < 2 ? 0x00200000u << byte : (byte - 1u) << 23);
}

// The numbers, with the bits of packed_parts().
DEVICE Scales convert_scales(const WeightShape& w, const ScaleWords& from) {
  const uint32_t s = from.scale[0];
  const uint32_t first = s & 0xFF, second = s >> 8 & 0xFF;
  Scales to{};
  switch (w.scale) {
    case ScaleKind::kNone:
      break;
    case ScaleKind::kF16:
      to.scale[0] = low_f16(s), to.scale[1] = high_f16(s);
      break;
    case ScaleKind::kF32:
      to.scale[0] = bits_float(s), to.scale[1] = bits_float(from.scale[1]);
      break;
    case ScaleKind::kE8M0:
      to.scale[0] = e8m0_number(first), to.scale[1] = e8m0_number(second);
      break;
    case ScaleKind::kE4M3:
      to.scale[0] = e4m3(static_cast<uint8_t>(first)) * w.factor;
      to.scale[1] = e4m3(static_cast<uint8_t>(second)) * w.factor;
      break;
    case ScaleKind::kSuper:
      to.scale[0] = low_f16(from.super) * w.factor * int8_number(first);
      to.scale[1] = high_f16(from.super) * w.factor * int8_number(second);
      break;
  }
  const uint32_t m = from.minimum[0];
  switch (w.zeros) {
    case ZeroKind::kConstant:
      break;
    case ZeroKind::kF16:
      to.minimum[0] = low_f16(m), to.minimum[1] = high_f16(m);
      break;
    case ZeroKind::kF32:
      to.minimum[0] = bits_float(m), to.minimum[1] = bits_float(from.minimum[1]);
      break;
    case ZeroKind::kSuper:
      to.minimum[0] = -(low_f16(from.super_minimum) * int8_number(m & 0xFF));
      to.minimum[1] = -(high_f16(from.super_minimum) * int8_number(m >> 8 & 0xFF));
      break;
    case ZeroKind::kInteger:
      to.minimum[0] = -(to.scale[0] * int8_number(m & 0xFF));
      to.minimum[1] = -(to.scale[1] * int8_number(m >> 8 & 0xFF));
      break;
  }
  return to;
}

// The forms of scales that loops over blocks are compiled for, because they are frequent: kHalf: float16, one a block, and
// minima too; kSuper: ScaleKind::kSuper, and minima ZeroKind::kSuper. kAny: all, chosen by the matrix.
enum class ScaleForm : uint8_t { kAny, kHalf, kSuper };

// load_scales() and convert_scales() of matrices that have the form. minima: minima_of(w).
template <ScaleForm kForm>
DEVICE void load_scales_as(const WeightShape& w, Global<const uint8_t> panel, int block, int half, bool minima, int g,
                           ScaleWords& to) {
  if constexpr (kForm == ScaleForm::kHalf) {
    const int at = 2 * kPanel * block;  // added last: a constant then costs no instruction
    to.scale[0] = load_once<1>(panel + (w.scales + 4 * g) + at).w[0];
    if (minima) to.minimum[0] = load_once<1>(panel + (w.minima + 4 * g) + at).w[0];
  } else if constexpr (kForm == ScaleForm::kSuper) {
    const int group = w.halves ? 2 * block + half : block, entry = group * kPanel + 2 * g;
    const int super = 2 * (block / (kSuperInputs / kBlockInputs) * kPanel + 2 * g);
    to.scale[0] = cast<const uint16_t>(panel + (w.scales + entry))[0];
    to.super = load<1>(panel + super).w[0];
    if (!minima) return;
    to.minimum[0] = cast<const uint16_t>(panel + (w.minima + entry))[0];
    to.super_minimum = load<1>(panel + (w.super_minima + super)).w[0];
  } else {
    load_scales(w, panel, block, half, g, to);
  }
}
template <ScaleForm kForm>
DEVICE Scales convert_scales_as(const WeightShape& w, const ScaleWords& from, bool minima) {
  Scales to{};
  if constexpr (kForm == ScaleForm::kHalf) {
    to.scale[0] = low_f16(from.scale[0]), to.scale[1] = high_f16(from.scale[0]);
    if (minima) to.minimum[0] = low_f16(from.minimum[0]), to.minimum[1] = high_f16(from.minimum[0]);
    return to;
  } else if constexpr (kForm == ScaleForm::kSuper) {
    to.scale[0] = low_f16(from.super) * w.factor * int8_number(from.scale[0] & 0xFF);
    to.scale[1] = high_f16(from.super) * w.factor * int8_number(from.scale[0] >> 8 & 0xFF);
    if (!minima) return to;
    to.minimum[0] = -(low_f16(from.super_minimum) * int8_number(from.minimum[0] & 0xFF));
    to.minimum[1] = -(high_f16(from.super_minimum) * int8_number(from.minimum[0] >> 8 & 0xFF));
    return to;
  } else {
    return convert_scales(w, from);
  }
}

// Those that lane 4 * g + `from` has.
template <bool kMinima>
DEVICE Scales shuffle_scales(const Scales& scales, int from) {
  const int lane_from = lane() / 4 * 4 + from;
  Scales to{};
  UNROLL
  for (int o = 0; o < 2; ++o) {
    to.scale[o] = shuffle(scales.scale[o], lane_from);
    if constexpr (kMinima) to.minimum[o] = shuffle(scales.minimum[o], lane_from);
  }
  return to;
}

}  // namespace quire::cuda
