// Codes of packed weights (kernels/packed.h) to the words of multiply_bf16(): for each kind of codes, what a lane loads of a
// block, and the bf16 numbers that this makes. A number is a code less its zero point, exact in bf16; float16, float32 and
// float tables are a sum of two or three bf16 numbers, the terms.
//
// A lane has inputs 8i .. 8i+7 of two outputs. Pair j of an output, inputs 8i + 2j and 8i + 2j + 1, is a word of step j / 2,
// of its half j % 2: so step s multiplies inputs 8i + 4s .. 8i + 4s + 3, i = 0 .. 3, of which the prepared inputs
// (cuda/linear/inputs.h) have the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/unroll.h"
#include "kernels/packed.h"

namespace quire::cuda {

// Tables of kTable4 and kFloat4, for each term the low bytes of 16 bf16 numbers, then their high bytes. Those of kTable4 end with
// its numbers as int8.
inline constexpr int kTableTerms = 3, kTableWords = 8;
struct CodeTables {
  uint32_t words[kTableTerms * kTableWords + 4];
};

// Variables, because kernels cannot call functions of the host, not even constant ones.
template <Codes kCodes>
inline constexpr int kCodeBits = code_bits(kCodes);
template <Codes kCodes>
inline constexpr int kCodeBlockBytes = static_cast<int>(code_block_bytes(kCodes));
template <Codes kCodes>
inline constexpr bool kHasTable = kCodes == Codes::kTable4 || kCodes == Codes::kFloat4;
template <Codes kCodes>
inline constexpr bool kHasScales = kCodes < Codes::kBf16;
// 32-bit words that a lane loads of a block: its 16 codes, and those in one byte with others.
template <Codes kCodes>
inline constexpr int kCodeWords = kCodeBits<kCodes> % 2 == 1 ? 3
                                  : kCodeBits<kCodes> == 2   ? 2
                                  : kCodeBits<kCodes> == 6   ? 4
                                                             : kCodeBits<kCodes> / 2;

// bf16 numbers whose sum is a weight. kInputTerms: 1 for inputs rounded to bf16; 3 for float32, with which tables are not
// rounded either.
template <Codes kCodes, int kInputTerms>
inline constexpr int kWeightTerms = kCodes == Codes::kF32                        ? 3
                                    : kCodes == Codes::kF16                      ? 2
                                    : kCodes == Codes::kFloat4&& kInputTerms > 1 ? 3
                                                                                 : 1;

template <Codes kCodes>
struct CodeWords {
  uint32_t w[kCodeWords<kCodes>];
};

// Words of multiply_bf16()'s `a` for both steps of a block: pair j of output 2g + o is at [j / 2][2 * (j % 2) + o].
struct WeightWords {
  uint32_t a[2][4];
  DEVICE uint32_t& pair(int j, int o) { return a[j / 2][2 * (j % 2) + o]; }
};

// The whole of one term of the table.
struct TableWords {
  uint32_t w[kTableWords];
};
DEVICE TableWords load_table(Global<const uint32_t> tables, int term) {
  TableWords table;
  UNROLL
  for (int k = 0; k < kTableWords; k += 4) {
    const Words<4> words = load<4>(tables + term * kTableWords + k);
    UNROLL
    for (int j = 0; j < 4; ++j) table.w[k + j] = words.w[j];
  }
  return table;
}

// block: the address of a block's codes, in global or shared memory. kOnce: it is global memory that is read once (load_once).
template <Codes kCodes, bool kOnce, class Address>
DEVICE void load_codes(Address block, CodeWords<kCodes>& to) {
  const int g = lane() / 4, i = lane() % 4;
  const auto pair = [&](int at, int line) {  // the dwords of outputs 2g and 2g + 1
    Words<2> words;
    if constexpr (kOnce) {
      words = load_once<2>(block + (64 * line + 8 * g));
    } else {
      words = load<2>(block + (64 * line + 8 * g));
    }
    to.w[at] = words.w[0], to.w[at + 1] = words.w[1];
  };
  if constexpr (kCodeBits<kCodes> == 2 || kCodeBits<kCodes> == 3) pair(0, i / 2);
  if constexpr (kCodeBits<kCodes> >= 4 && kCodeBits<kCodes> <= 6) pair(0, i);
  if constexpr (kCodeBits<kCodes> == 3 || kCodeBits<kCodes> == 5) {
    const auto masks = block + ((kCodeBits<kCodes> == 3 ? 128 : 256) + 16 * i + g);
    to.w[2] = masks[0] | static_cast<uint32_t>(masks[8]) << 8;
  }
  if constexpr (kCodeBits<kCodes> == 6) pair(2, 4 + i / 2);
  if constexpr (kCodeBits<kCodes> == 8) {
    pair(0, 2 * i);
    pair(2, 2 * i + 1);
  }
  if constexpr (kCodes == Codes::kBf16) {
    UNROLL
    for (int j = 0; j < 4; ++j) pair(2 * j, 4 * i + j);
  }
  if constexpr (kCodes == Codes::kF16) {
    UNROLL
    for (int k = 0; k < 8; ++k) to.w[k] = load<1>(block + (32 * (8 * i + k) + 4 * g)).w[0];
  }
  if constexpr (kCodes == Codes::kF32) {
    UNROLL
    for (int k = 0; k < 8; ++k) pair(2 * k, 8 * i + k);
  }
}

// ---- Numbers of pairs of codes, one in each half of a word

// Two numbers 128, and 128 plus the zero point, for unsigned codes.
struct CodeZero {
  uint32_t exponents, zero;  // WeightShape
};
DEVICE uint32_t unsigned_pair(uint32_t codes, uint32_t mask, const CodeZero& zero) {
  return subtract_bf16((codes & mask) | zero.exponents, zero.zero);
}

// 128 + (u & 127), less 128 or, for a negative number, 256.
DEVICE uint32_t int8_pair(uint32_t u) {
  return subtract_bf16((u & 0x007F007Fu) | 0x43004300u, (u & 0x00800080u) | 0x43004300u);
}

// E4M3 has four bits of exponent with bias 7 and three of mantissa. Subnormal numbers, m / 8 * 2^-6, get the exponent of 2^-6
// and 2^-6 is subtracted.
DEVICE uint32_t e4m3_pair(uint32_t u) {
  const uint32_t size = u & 0x007F007Fu;
  const uint32_t subnormal = ((size + 0x00780078u) >> 7 & 0x00010001u) ^ 0x00010001u;
  const uint32_t normal = (size << 4) + 0x3C003C00u + (subnormal << 7);
  return subtract_bf16(normal, subnormal * 0x3C80u) | (u & 0x00800080u) << 8;
}

// Bytes T[n] for the four nibbles in the low half of `codes`. table: 16 bytes.
DEVICE uint32_t look_up(const uint32_t (&table)[kTableWords], int from, uint32_t nibbles, uint32_t choice) {
  const uint32_t low = permute_bytes(table[from], table[from + 1], nibbles),
                 high = permute_bytes(table[from + 2], table[from + 3], nibbles);
  return permute_bytes(low, high, choice);
}
// The four pairs of a dword of 4 bits.
DEVICE void table_pairs(uint32_t codes, const TableWords& table, uint32_t (&pairs)[4]) {
  // Bits 0 .. 2 of a nibble choose a byte in each half of the table, bit 3 chooses the half.
  const uint32_t nibbles = codes & 0x77777777u, choices = (codes >> 1 & 0x44444444u) | 0x32103210u;
  uint32_t numbers[2][2];  // [even or odd inputs][pairs 0 and 1, or 2 and 3]
  UNROLL
  for (int odd = 0; odd < 2; ++odd) {
    const uint32_t n = nibbles >> 16 * odd, c = choices >> 16 * odd;
    const uint32_t low = look_up(table.w, 0, n, c), high = look_up(table.w, 4, n, c);
    numbers[odd][0] = permute_bytes(low, high, 0x5140), numbers[odd][1] = permute_bytes(low, high, 0x7362);
  }
  UNROLL
  for (int j = 0; j < 4; ++j)
    pairs[j] = permute_bytes(numbers[0][j / 2], numbers[1][j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
}

// x = high + middle + low, each rounded to bf16; infinities and NaN are all in the first.
struct Bf16Terms {
  float term[3];
};
DEVICE Bf16Terms bf16_terms(float x) {
  const uint32_t bits = float_bits(x);
  float high = low_bf16(pack_bf16(x, 0.0f));
  if ((bits & 0x7F800000u) == 0x7F800000u) return {{high, 0, 0}};
  if ((float_bits(high) & 0x7F800000u) == 0x7F800000u) high = bits_float(bits & 0xFFFF0000u);  // rounded to infinity
  const float rest = x - high, middle = low_bf16(pack_bf16(rest, 0.0f));
  return {{high, middle, rest - middle}};
}

// One term of the weights of a block. table: of the term, for codes with tables.
template <Codes kCodes, int kTerm>
DEVICE void decode(const CodeWords<kCodes>& from, const CodeZero& zero, const TableWords& table, WeightWords& to) {
  constexpr uint32_t kNibbles = 0x000F000F, kTwoBits = 0x00030003, kOneBit = 0x00010001, kBytes = 0x00FF00FF;
  const int i = lane() % 4;
  UNROLL
  for (int o = 0; o < 2; ++o) {
    if constexpr (kHasTable<kCodes>) {
      uint32_t pairs[4];
      table_pairs(from.w[o], table, pairs);
      UNROLL
      for (int j = 0; j < 4; ++j) to.pair(j, o) = pairs[j];
    } else if constexpr (kCodeBits<kCodes> <= 6) {
      constexpr int kBits = kCodeBits<kCodes>;
      uint32_t two_bits = 0, top_bits = 0;
      if constexpr (kBits < 4) two_bits = from.w[o] >> (4 * (i % 2));
      if constexpr (kBits == 6) two_bits = from.w[2 + o] >> (4 * (i % 2));
      // Of low nibbles the bits of inputs 0, 4, 1 and 5, from bit 8 those of high ones, inputs 2, 6, 3 and 7. Moved by 14, the
      // second of a pair is above the first.
      if constexpr (kBits % 2 == 1) {
        top_bits = from.w[2] >> (4 * o) & 0x0F0Fu;
        top_bits = (top_bits | top_bits << 14);
      }
      UNROLL
      for (int j = 0; j < 4; ++j) {
        if constexpr (kBits == 4) {
          to.pair(j, o) = unsigned_pair(from.w[o] >> (4 * j), kNibbles, zero);
          continue;
        }
        const uint32_t two = two_bits >> (8 * (j / 2) + 2 * (j % 2));
        if constexpr (kBits == 2) {
          to.pair(j, o) = unsigned_pair(two, kTwoBits, zero);
          continue;
        }
        uint32_t codes = kBits == 3 ? two & kTwoBits : from.w[o] >> (4 * j) & kNibbles;
        if constexpr (kBits == 6) codes |= (two & kTwoBits) << 4;
        if constexpr (kBits % 2 == 1) codes |= (top_bits >> (8 * (j % 2) + j / 2) & kOneBit) << (kBits - 1);
        to.pair(j, o) = unsigned_pair(codes, 0xFFFFFFFFu, zero);
      }
    } else if constexpr (kCodeBits<kCodes> == 8) {
      UNROLL
      for (int j = 0; j < 4; ++j) {
        const uint32_t bytes = from.w[2 * (j % 2) + o] >> (8 * (j / 2)) & kBytes;
        to.pair(j, o) = kCodes == Codes::kI8 ? int8_pair(bytes) : e4m3_pair(bytes);
      }
    } else if constexpr (kCodes == Codes::kBf16) {
      UNROLL
      for (int j = 0; j < 4; ++j) to.pair(j, o) = from.w[2 * j + o];
    } else {
      UNROLL
      for (int j = 0; j < 4; ++j) {
        float numbers[2];
        UNROLL
        for (int e = 0; e < 2; ++e) {
          if constexpr (kCodes == Codes::kF16) {
            const uint32_t both = from.w[2 * j + e];
            numbers[e] = o == 0 ? low_f16(both) : high_f16(both);
          } else {
            numbers[e] = bits_float(from.w[2 * (2 * j + e) + o]);
          }
        }
        to.pair(j, o) = pack_bf16(bf16_terms(numbers[0]).term[kTerm], bf16_terms(numbers[1]).term[kTerm]);
      }
    }
  }
}

// All terms.
template <Codes kCodes, int kTerms>
DEVICE void decode_terms(const CodeWords<kCodes>& from, const CodeZero& zero, const TableWords (&tables)[kTerms],
                         WeightWords (&to)[kTerms]) {
  decode<kCodes, 0>(from, zero, tables[0], to[0]);
  if constexpr (kTerms > 1) decode<kCodes, 1>(from, zero, tables[1], to[1]);
  if constexpr (kTerms > 2) decode<kCodes, 2>(from, zero, tables[2], to[2]);
}

// The tables of a matrix, if its codes have any.
template <Codes kCodes, int kTerms>
DEVICE void load_tables(Global<const uint32_t> from, TableWords (&to)[kTerms]) {
  if constexpr (kHasTable<kCodes>) {
    UNROLL
    for (int t = 0; t < kTerms; ++t) to[t] = load_table(from, t);
  }
}

}  // namespace quire::cuda
