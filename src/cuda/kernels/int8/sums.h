// The sums of linears with int8 inputs, with the bits of the CPU (LinearArgs, kernels/kernels.h): products of a block are exact
// integers, whoever computes them, and one thread adds those of all blocks of a result in the order of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/int8/inputs.h"
#include "cuda/kernels/linear.h"
#include "cuda/kernels/unpack.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// What loops over blocks are compiled for. kTwoLevels: has_two_levels(). kWholeRows: kInt8Row, whose products need no scales
// before all of them are added.
template <Codes kOfCodes, bool kOfHalves, bool kOfMinima, bool kOfTwoLevels, bool kOfWholeRows = false>
struct Int8Format {
  static constexpr Codes kCodes = kOfCodes;
  static constexpr bool kHalves = kOfHalves, kMinima = kOfMinima, kTwoLevels = kOfTwoLevels, kWholeRows = kOfWholeRows;
  static constexpr int kGroups = kHalves ? 2 : 1;  // scales of a block
  static_assert(!kTwoLevels || kHalves);
};

// The float of a product that began at kProductZero: integers below 2^22 added to the bits of 1.5 * 2^23 add to the number.
inline constexpr int32_t kProductZero = 0x4B400000;
DEVICE float product_float(int32_t product) {
  return bits_float(static_cast<uint32_t>(product)) - bits_float(kProductZero);
}

// A block's products with eight rows: of both halves, or of all inputs.
template <int kGroups>
DEVICE void multiply_int8(int32_t (&d)[kGroups][4], const uint32_t (&a)[4], const Words<2>& x) {
  if constexpr (kGroups == 1) {
    multiply_i8(d[0], a, x.w);
  } else {
    // Lanes with i = 0 and 1 have inputs 0 .. 15.
    UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t mask = lane() % 4 / 2 == half ? 0xFFFFFFFFu : 0u;
      const uint32_t b[2] = {x.w[0] & mask, x.w[1] & mask};
      multiply_i8(d[half], a, b);
    }
  }
}
template <int kGroups>
DEVICE void clear_products(int32_t (&d)[kGroups][4]) {
  UNROLL
  for (int half = 0; half < kGroups; ++half) {
    UNROLL
    for (int k = 0; k < 4; ++k) d[half][k] = kProductZero;
  }
}

// Numbers that scale a block's products: kScale of each group, then kMinimum of each, then, with two levels, the float16 above
// them and above the minima.
template <class Format>
inline constexpr int kInt8Scales = Format::kGroups*(Format::kMinima ? 2 : 1) +
                                   (Format::kTwoLevels ? (Format::kMinima ? 2 : 1) : 0);
template <class Format>
struct Int8Scales {
  float v[kInt8Scales<Format>];

  static constexpr int kMinimum = Format::kGroups, kSuper = Format::kGroups * (Format::kMinima ? 2 : 1);
  DEVICE float scale(int group) const { return v[group]; }
  DEVICE float minimum(int group) const { return v[kMinimum + group]; }
  DEVICE float super() const { return v[kSuper]; }
  DEVICE float super_minimum() const { return v[kSuper + 1]; }
};

// Those of outputs 2g and 2g + 1, from what load_scales() found.
template <class Format, ScaleForm kForm>
DEVICE void convert_int8_scales(const WeightShape& w, const ScaleWords (&from)[Format::kGroups],
                                Int8Scales<Format> (&to)[2]) {
  using To = Int8Scales<Format>;
  UNROLL
  for (int group = 0; group < Format::kGroups; ++group) {
    Scales scales{};
    if constexpr (Format::kTwoLevels) {
      UNROLL
      for (int o = 0; o < 2; ++o) {
        scales.scale[o] = int8_number(from[group].scale[0] >> (8 * o) & 0xFF);
        if constexpr (Format::kMinima) scales.minimum[o] = int8_number(from[group].minimum[0] >> (8 * o) & 0xFF);
      }
    } else {
      scales = convert_scales_as<kForm>(w, from[group], Format::kMinima);
    }
    UNROLL
    for (int o = 0; o < 2; ++o) {
      to[o].v[group] = scales.scale[o];
      if constexpr (Format::kMinima) to[o].v[To::kMinimum + group] = scales.minimum[o];
    }
  }
  if constexpr (Format::kTwoLevels) {
    to[0].v[To::kSuper] = low_f16(from[0].super) * w.factor, to[1].v[To::kSuper] = high_f16(from[0].super) * w.factor;
    if constexpr (Format::kMinima) {
      to[0].v[To::kSuper + 1] = -low_f16(from[0].super_minimum);
      to[1].v[To::kSuper + 1] = -high_f16(from[0].super_minimum);
    }
  }
}
template <class Format, ScaleForm kForm>
DEVICE void load_int8_scales(const WeightShape& w, Global<const uint8_t> panel, int block,
                             ScaleWords (&to)[Format::kGroups]) {
  UNROLL
  for (int half = 0; half < Format::kGroups; ++half)
    load_scales_as<kForm>(w, panel, block, half, Format::kMinima, lane() / 4, to[half]);
}

DEVICE bool ends_super(int block, int blocks) {
  return (block + 1) % (kSuperInputs / kBlockInputs) == 0 || block + 1 == blocks;
}

// As much of a block's 16 bytes as the format needs.
template <class Format, class Address>
DEVICE Int8BlockInfo load_block_info(Address at) {
  if constexpr (!Format::kMinima) {
    return {bits_float(load<1>(at).w[0]), 0, {0, 0}};
  } else if constexpr (!Format::kHalves) {
    const Words<2> words = load<2>(at);
    return {bits_float(words.w[0]), bits_float(words.w[1]), {0, 0}};
  } else {
    const Words<4> words = load<4>(at);
    return {bits_float(words.w[0]), bits_float(words.w[1]), {bits_float(words.w[2]), bits_float(words.w[3])}};
  }
}

// The sum of one result over its blocks.
template <class Format>
struct Int8Sum {
  float acc = 0;
  float low = 0;       // kMinima
  float part = 0;      // kTwoLevels: of the 256 inputs that are added
  float low_part = 0;  // both

  // last: of 256 inputs.
  DEVICE void add(const int32_t (&products)[Format::kGroups], const Int8Scales<Format>& w, const Int8BlockInfo& x,
                  bool last) {
    if constexpr (!Format::kHalves) {
      acc = fma_of(product_float(products[0]), w.scale(0) * x.scale, acc);
      if constexpr (Format::kMinima) low = fma_of(w.minimum(0), x.sum, low);
    } else {
      const float sum = fma_of(product_float(products[1]), w.scale(1), product_float(products[0]) * w.scale(0));
      if constexpr (!Format::kTwoLevels) {
        acc = fma_of(sum, x.scale, acc);
        if constexpr (Format::kMinima) {
          UNROLL
          for (int half = 0; half < 2; ++half) low = fma_of(w.minimum(half), x.scale * x.half_sums[half], low);
        }
        return;
      }
      part = fma_of(sum, x.scale, part);
      if constexpr (Format::kMinima && Format::kTwoLevels) {
        const float minimum = fma_of(x.half_sums[1], w.minimum(1), x.half_sums[0] * w.minimum(0));
        low_part = fma_of(minimum, x.scale, low_part);
        if (last) low = fma_of(low_part, w.super_minimum(), low), low_part = 0;
      }
      if constexpr (Format::kTwoLevels) {
        if (last) acc = fma_of(part, w.super(), acc), part = 0;
      }
    }
  }
  DEVICE float value() const { return Format::kMinima ? acc + low : acc; }
};

// A result of kInt8Row. panel: of output n; x: the prepared row.
DEVICE float finish_int8_row(const WeightShape& w, Global<const uint8_t> panel, int n, Global<const uint8_t> x,
                             int32_t dot) {
  const Words<2> info = load<2>(x + w.blocks * kInt8Block);
  const float scale = cast<const float>(panel + w.scales)[n];
  float value = static_cast<float>(dot) * (scale * bits_float(info.w[0]));
  if (info.w[1] == 0) return value;
  const auto outliers = cast<const uint16_t>(x + outliers_at(w.blocks));
  for (int b = 0; b < w.blocks; ++b) {
    uint32_t mask = load<1>(x + (outlier_masks_at(w.blocks) + 4 * b)).w[0];
    const auto codes = panel + (w.codes + b * static_cast<ptrdiff_t>(kCodeBlockBytes<Codes::kI8>));
    for (int k = 0; mask != 0; ++k, mask >>= 1) {
      if ((mask & 1) == 0) continue;
      const float code = int8_number(unpack_code(codes, 8, n, k));
      value = fma_of(low_f16(outliers[b * kBlockInputs + k]), scale * code, value);
    }
  }
  return value;
}
// Likewise of four, from `output` of the matrix on, a multiple of 4. data: its panels.
DEVICE void finish_int8_rows(const WeightShape& w, Global<const uint8_t> data, int output, Global<const uint8_t> x,
                             Words<4>& dots) {
  const int panel = output / kPanel;
  if (panel >= panels_of(w)) return;
  UNROLL
  for (int k = 0; k < 4; ++k)
    dots.w[k] = float_bits(finish_int8_row(w, data + static_cast<ptrdiff_t>(panel) * w.panel_bytes, output % kPanel + k,
                                           x, static_cast<int32_t>(dots.w[k])));
}

}  // namespace quire::cuda
