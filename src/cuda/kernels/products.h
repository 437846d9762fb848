// Products of a panel's block of weights with eight rows of inputs, and what becomes of a linear's sums: the parts that all
// kernels of linears share, so that they have the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Prepared rows (cuda/linear/inputs.h). A row is its bf16 numbers, [terms][32 * blocks], then the sums of half blocks, [2 * blocks]
// float32.
struct PreparedRows {
  Global<const uint8_t> data;
  int32_t stride = 0;  // bytes
  int32_t unused = 0;
};
constexpr int kPreparedBlock = 2 * kBlockInputs;  // bytes of a term of a block

// Words of multiply_bf16()'s `b` for both steps of a block: word 2s + h is that of step s and half h.
template <int kTerms>
struct InputWords {
  uint32_t b[kTerms][4];
};

// acc += weights * inputs, in a fixed order of terms; products whose share is below 2^-25 are left out.
template <Codes kCodes, int kTerms>
DEVICE void multiply_steps(float (&acc)[4], const WeightWords (&w)[kWeightTerms<kCodes, kTerms>],
                           const InputWords<kTerms>& x) {
  UNROLL
  for (int s = 0; s < 2; ++s) {
    UNROLL
    for (int t = 0; t < kWeightTerms<kCodes, kTerms>; ++t) {
      UNROLL
      for (int u = 0; u < kTerms; ++u) {
        if (t + u > 2) continue;
        const uint32_t b[2] = {x.b[u][2 * s], x.b[u][2 * s + 1]};
        multiply_bf16(acc, w[t].a[s], b);
      }
    }
  }
}

// sums: of the lane's two rows, those that columns 2i and 2i + 1 of the product are.
template <bool kMinima>
DEVICE void add_scaled(float (&acc)[4], const float (&t)[4], const Scales& scales, const float (&sums)[2]) {
  UNROLL
  for (int o = 0; o < 2; ++o) {
    UNROLL
    for (int r = 0; r < 2; ++r) {
      float& to = acc[2 * o + r];
      to = fma_of(t[2 * o + r], scales.scale[o], to);
      if constexpr (kMinima) to = fma_of(scales.minimum[o], sums[r], to);
    }
  }
}

// Codes, whether groups are halves of blocks, and whether there are minima: what loops over blocks are compiled for.
template <Codes kOfCodes, bool kOfHalves, bool kOfMinima>
struct LinearFormat {
  static constexpr Codes kCodes = kOfCodes;
  static constexpr bool kHalves = kOfHalves, kMinima = kOfMinima, kScales = kHasScales<kCodes>;
  static constexpr int kGroups = kHalves ? 2 : 1;  // scales of a block
};

// Inputs 0 .. 15 of a block, or 16 .. 31, with zeros in place of the others: lanes with i = 0 and 1 have the first.
template <int kTerms>
DEVICE InputWords<kTerms> half_of(const InputWords<kTerms>& x, int half) {
  const uint32_t mask = lane() % 4 / 2 == half ? 0xFFFFFFFFu : 0u;
  InputWords<kTerms> to;
  UNROLL
  for (int u = 0; u < kTerms; ++u) {
    UNROLL
    for (int k = 0; k < 4; ++k) to.b[u][k] = x.b[u][k] & mask;
  }
  return to;
}

// The block's part of the sums (weights.h). sums: of half blocks, for minima: [row][half].
template <class Format, int kTerms>
DEVICE void multiply_block(float (&acc)[4], const WeightWords (&w)[kWeightTerms<Format::kCodes, kTerms>],
                           const InputWords<kTerms>& x, const Scales (&scales)[Format::kGroups],
                           const float (&sums)[2][2]) {
  if constexpr (!Format::kScales) {
    multiply_steps<Format::kCodes, kTerms>(acc, w, x);
  } else if constexpr (Format::kHalves) {
    UNROLL
    for (int half = 0; half < 2; ++half) {
      float t[4] = {};
      multiply_steps<Format::kCodes, kTerms>(t, w, half_of(x, half));
      add_scaled<Format::kMinima>(acc, t, scales[half], {sums[0][half], sums[1][half]});
    }
  } else {
    float t[4] = {};
    multiply_steps<Format::kCodes, kTerms>(t, w, x);
    add_scaled<Format::kMinima>(acc, t, scales[0], {sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]});
  }
}

// ---- After the sums

struct Finish {
  Global<const float> bias, up_bias;  // [outputs], or nullptr
  float alpha = 0, limit = 0;         // of Nonlinearity::kClampedSwiglu
  float scale = 1;
  Nonlinearity f = Nonlinearity::kNone;
  bool accumulate = false;
  bool unused = false;
  bool gates_target = false;  // the target holds the other factor: y = f(value) * y. Without `up` and `accumulate`
};

// values: x W^T of `count` outputs of a row from `output` on, at most 4. ups: those of the other matrix, if `gated`. y: the
// targets' numbers. fours: y is at a multiple of 16 bytes. All branches are the same for all threads, but for the last outputs.
DEVICE void finish(const Finish& to, int output, int count, float (&values)[4], bool gated, float (&ups)[4],
                   Global<float> y, bool fours) {
  const bool whole = fours && count >= 4;
  float before[4] = {};
  if (to.accumulate || to.gates_target) {
    if (whole) {
      const Words<4> words = load<4>(y);
      UNROLL
      for (int k = 0; k < 4; ++k) before[k] = bits_float(words.w[k]);
    } else {
      UNROLL
      for (int k = 0; k < 4; ++k)
        if (k < count) before[k] = y[k];
    }
  }
  const auto add_bias = [&](Global<const float> bias, float(&x)[4]) {
    if (bias == nullptr) return;
    UNROLL
    for (int k = 0; k < 4; ++k)
      if (k < count) x[k] += bias[output + k];
  };
  add_bias(to.bias, values);
  if (to.gates_target) {
    UNROLL
    for (int k = 0; k < 4; ++k) ups[k] = before[k];
  }
  gated = gated || to.gates_target;
  if (gated) add_bias(to.up_bias, ups);
  apply(to.f, values, gated, ups, to.alpha, to.limit);
  UNROLL
  for (int k = 0; k < 4; ++k) {
    if (to.scale != 1.0f) values[k] *= to.scale;
    if (to.accumulate) values[k] = before[k] + values[k];
  }
  if (whole) {
    Words<4> words;
    UNROLL
    for (int k = 0; k < 4; ++k) words.w[k] = float_bits(values[k]);
    store(y, words);
  } else {
    UNROLL
    for (int k = 0; k < 4; ++k)
      if (k < count) y[k] = values[k];
  }
}

}  // namespace quire::cuda
