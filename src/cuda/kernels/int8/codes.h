// Codes of packed weights to the words of multiply_i8(): integers less their zero point, as int8.
//
// A lane has inputs 8i .. 8i+7 of outputs 2g and 2g + 1 of a block (kernels/codes.h): in kPairOrder, the first four are a
// word and the last four another, of weights as of prepared inputs. So one product multiplies a block.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/codes.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// What all codes of a matrix need: the zero point in each byte, and the numbers of kTable4.
struct Int8Numbers {
  uint32_t zeros;
  Words<4> table;
};
template <Codes kCodes>
DEVICE Int8Numbers int8_numbers(const WeightShape& w) {
  Int8Numbers to{(w.zero & 0x7Fu) * 0x01010101u, {}};
  if constexpr (kCodes == Codes::kTable4) to.table = load<4>(w.tables + kTableTerms * kTableWords);
  return to;
}

// Bytes below 128, less those of `zeros`: with the top bits set no byte borrows from the next.
DEVICE uint32_t subtract_zeros(uint32_t codes, uint32_t zeros) { return ((codes | 0x80808080u) - zeros) ^ 0x80808080u; }
// Bits 0 .. 3 to bit 0 of bytes 0 .. 3.
DEVICE uint32_t spread_bits(uint32_t bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

// a[2h + o]: word h of output 2g + o.
template <Codes kCodes>
DEVICE void decode_int8(const CodeWords<kCodes>& from, const Int8Numbers& numbers, uint32_t (&a)[4]) {
  constexpr int kBits = kCodeBits<kCodes>;
  constexpr uint32_t kNibbles = 0x0F0F0F0F, kTwoBits = 0x03030303;
  UNROLL
  for (int o = 0; o < 2; ++o) {
    if constexpr (kCodes == Codes::kI8) {
      a[o] = from.w[o], a[2 + o] = from.w[2 + o];
    } else if constexpr (kCodes == Codes::kTable4) {
      // Numbers of inputs 0, 2, 4, 6 and 1, 3, 5, 7: as in table_pairs().
      const uint32_t(&table)[4] = numbers.table.w;
      const uint32_t nibbles = from.w[o] & 0x77777777u, choices = (from.w[o] >> 1 & 0x44444444u) | 0x32103210u;
      uint32_t found[2];
      UNROLL
      for (int odd = 0; odd < 2; ++odd) {
        const uint32_t n = nibbles >> 16 * odd;
        found[odd] = permute_bytes(permute_bytes(table[0], table[1], n), permute_bytes(table[2], table[3], n),
                                   choices >> 16 * odd);
      }
      a[o] = permute_bytes(found[0], found[1], 0x6420), a[2 + o] = permute_bytes(found[0], found[1], 0x7531);
    } else {
      uint32_t low = 0, high = 0;
      if constexpr (kBits >= 4) low = from.w[o] & kNibbles, high = from.w[o] >> 4 & kNibbles;
      if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {
        const uint32_t two = from.w[kBits == 6 ? 2 + o : o] >> (4 * (lane() % 2));
        constexpr int kUp = kBits == 6 ? 4 : 0;
        low |= (two & kTwoBits) << kUp, high |= (two >> 2 & kTwoBits) << kUp;
      }
      if constexpr (kBits % 2 == 1) {
        const uint32_t top = from.w[2] >> (4 * o);
        low |= spread_bits(top) << (kBits - 1), high |= spread_bits(top >> 8) << (kBits - 1);
      }
      a[o] = subtract_zeros(low, numbers.zeros), a[2 + o] = subtract_zeros(high, numbers.zeros);
    }
  }
}

}  // namespace quire::cuda
