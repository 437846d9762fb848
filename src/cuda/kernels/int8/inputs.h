// Inputs rounded to int8, with the bits of Int8Block and Int8RowBlock (kernels/kernels.h), and how a prepared row holds them
// (cuda/linear/inputs.h).
//
// A prepared row of `blocks` blocks of 32 inputs, with zeros in place of inputs that the last block has not:
//
//   kInt8       int8     [32 * blocks]   codes, in kPairOrder within each eight
//               float32  [blocks][4]     Int8Block's scale, sum, and half sums
//   kInt8Row    int8     [32 * blocks]   likewise, those of outliers 0
//               float32, uint32, 2 * 4 unused bytes:  the row's scale, and whether it has outliers
//               float16  [32 * blocks]   the outliers; other numbers are undefined
//               uint32   [blocks]        bit i: input i is an outlier. Undefined if the row has none
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/prepared_row.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"

namespace quire::cuda {

inline constexpr int kInt8Block = kBlockInputs;  // bytes of a block's codes
inline constexpr int kInt8InfoBytes = 16;        // of a block with kInt8; of a row with kInt8Row

DEVICE int outliers_at(int blocks) { return blocks * kInt8Block + kInt8InfoBytes; }
DEVICE int outlier_masks_at(int blocks) { return outliers_at(blocks) + blocks * kBlockInputs * 2; }

// What scales the products of a block.
struct Int8BlockInfo {
  float scale, sum, half_sums[2];
};

// ---- Rounding

DEVICE uint32_t magnitude_bits(float x) { return float_bits(x) & 0x7FFFFFFFu; }
DEVICE bool is_outlier(float x, float threshold) { return bits_float(magnitude_bits(x)) >= threshold; }
DEVICE uint32_t larger_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

// largest: the largest magnitude. Blocks below kSmallestInt8 become zeros.
DEVICE float int8_factor(float largest) { return largest >= 0x1p-121f ? 127.0f / largest : 0.0f; }

// x * factor to the nearest integer, ties to even; NaN is -127. Adding 1.5 * 2^23 rounds to integers.
DEVICE int int8_input(float x, float factor) {
  constexpr float kRounder = 0x1.8p23f;
  float value = x * factor;
  if (!(value > -127.0f)) value = -127.0f;
  return static_cast<int>(float_bits(value + kRounder) - float_bits(kRounder));
}

// Codes of inputs 8 * eight .. + 7, written in kPairOrder.
DEVICE void store_codes(const int (&codes)[8], int eight, Global<uint8_t> row) {
  const auto byte = [&](int k, int at) { return (static_cast<uint32_t>(codes[k]) & 0xFF) << (8 * at); };
  store(row + 8 * eight, Words<2>{{byte(0, 0) | byte(4, 1) | byte(1, 2) | byte(5, 3),
                                   byte(2, 0) | byte(6, 1) | byte(3, 2) | byte(7, 3)}});
}

// As write_eight() of float32 and bf16 (kernels/prepared_row.h), for kInt8.
DEVICE void write_int8_eight(const float (&inputs)[8], int eight, int blocks, Global<uint8_t> row) {
  uint32_t most = 0;
  UNROLL
  for (int k = 0; k < 8; ++k) most = larger_of(most, magnitude_bits(inputs[k]));
  UNROLL
  for (int mask = 1; mask <= 2; mask *= 2) most = larger_of(most, shuffle_xor(most, mask));
  const float largest = bits_float(most), scale = largest / 127.0f, factor = int8_factor(largest);
  int codes[8], sum = 0;
  UNROLL
  for (int k = 0; k < 8; ++k) codes[k] = int8_input(inputs[k], factor), sum += codes[k];
  const int half = sum + shuffle_xor(sum, 1), other = shuffle_xor(half, 2);
  if (eight >= 4 * blocks) return;
  store_codes(codes, eight, row);
  if (eight % 4 != 0) return;
  store(row + (blocks * kInt8Block + eight / 4 * kInt8InfoBytes),
        Words<4>{{float_bits(scale), float_bits(scale * static_cast<float>(half + other)),
                  float_bits(static_cast<float>(half)), float_bits(static_cast<float>(other))}});
}

// What a whole row decides. largest: the bits of the largest magnitude below the threshold, or of NaN.
struct RowMost {
  uint32_t largest = 0, outliers = 0;  // outliers: 1 if there are any

  DEVICE void see(float x, float threshold) {
    if (is_outlier(x, threshold)) {
      outliers = 1;
    } else {
      largest = larger_of(largest, magnitude_bits(x));
    }
  }
};

// Of all threads of a block of whole warps. As sum_over_block().
DEVICE RowMost most_over_block(RowMost v) {
  const auto over_warp = [&] {
    UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      v.largest = larger_of(v.largest, shuffle_xor(v.largest, mask));
      v.outliers |= shuffle_xor(v.outliers, mask);
    }
  };
  over_warp();
  const auto all = shared<uint32_t>(0);
  sync_block();  // nobody reads what is there any more
  if (lane() == 0) all[2 * warp()] = v.largest, all[2 * warp() + 1] = v.outliers;
  sync_block();
  v = {};
  if (lane() < threads() / 32) v = {all[2 * lane()], all[2 * lane() + 1]};
  over_warp();
  return v;
}

// outlier_f16() (kernels/lanes.h): finite numbers stay finite.
DEVICE uint32_t outlier_f16_bits(float x) {
  constexpr float kLargest = 65504;
  const bool finite = magnitude_bits(x) < 0x7F800000u;
  if (finite && x > kLargest) x = kLargest;
  if (finite && x < -kLargest) x = -kLargest;
  return pack_f16(x, 0.0f) & 0xFFFF;
}

// As write_int8_eight(), for kInt8Row. most: of the row.
DEVICE void write_int8_row_eight(const float (&inputs)[8], int eight, int blocks, const RowMost& most, float threshold,
                                 Global<uint8_t> row) {
  const float largest = bits_float(most.largest), factor = int8_factor(largest);
  int codes[8];
  uint32_t mask = 0;
  UNROLL
  for (int k = 0; k < 8; ++k) {
    const bool outlier = is_outlier(inputs[k], threshold);
    codes[k] = outlier ? 0 : int8_input(inputs[k], factor);
    if (outlier) mask |= 1u << (8 * (eight % 4) + k);
  }
  UNROLL
  for (int by = 1; by <= 2; by *= 2) mask |= shuffle_xor(mask, by);
  if (eight >= 4 * blocks) return;
  store_codes(codes, eight, row);
  if (eight == 0) store(row + blocks * kInt8Block, Words<4>{{float_bits(largest / 127.0f), most.outliers, 0, 0}});
  if (most.outliers == 0) return;
  Words<4> numbers;
  UNROLL
  for (int k = 0; k < 4; ++k)
    numbers.w[k] = outlier_f16_bits(inputs[2 * k]) | outlier_f16_bits(inputs[2 * k + 1]) << 16;
  store(row + (outliers_at(blocks) + 16 * eight), numbers);
  if (eight % 4 == 0) store(row + (outlier_masks_at(blocks) + eight), Words<1>{{mask}});
}

}  // namespace quire::cuda
