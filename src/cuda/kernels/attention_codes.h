// Pages of codes in shared memory to the bf16 tiles that products read.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/int4_codes.h"
#include "cuda/kernels/kv_pages.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// Where 16 bytes (a unit) of a page of a bf16 cache lie in shared memory: in an order in which the 16 bytes that 8 neighbouring lanes
// load together are in 8 different groups of banks (attention_tiles.h).
DEVICE int key_unit(int unit) { return unit ^ (unit >> 2 & 2); }
DEVICE int value_unit(int unit, int page) { return unit ^ (unit >> 3 & 2) ^ (page & 1) * 4; }

// Four words of bf16 pairs of two words of four codes each: word j has code j of `low` and code j of `high`.
DEVICE Words<4> int8_pairs(uint32_t low, uint32_t high) {
  Words<4> pairs;
  UNROLL
  for (uint32_t j = 0; j < 4; ++j) {
    // As bits of bf16 numbers from 128 on, whose last bit is worth 1: 128 + the low 7 bits, less 128 or, if negative, 256.
    const uint32_t codes = permute_bytes(low, high, j | (j + 4) << 8);
    pairs.w[j] = subtract_bf16((codes & 0x007f007fu) | 0x43004300u, (codes & 0x00800080u) | 0x43004300u);
  }
  return pairs;
}
DEVICE Words<4> fp8_pairs(uint32_t low, uint32_t high) {
  Words<4> pairs;
  UNROLL
  for (uint32_t j = 0; j < 4; ++j) {
    const uint32_t codes = permute_bytes(low, high, j | (j + 4) << 8);
    // Exponent and mantissa where bf16 has them; the exponent is too small by 112, or 113 if it is 0: then the number's first bit is
    // not hidden, and the bf16 number is too large by 2^-14.
    const uint32_t size = (codes & 0x007f007fu) << 4;
    const uint32_t subnormal = (((size & 0x07800780u) + 0x07800780u) >> 4 & 0x00800080u) ^ 0x00800080u;
    pairs.w[j] = subtract_bf16(size + 0x38003800u + subnormal, subnormal * 0x71u) | (codes & 0x00800080u) << 8;
  }
  return pairs;
}

// The numbers of one block's keys, or values, of int8 or fp8 codes: both have the codes of a unit's pairs in two words 16 bytes apart.
// from: the codes of page 0; pages are `stride` bytes apart. to: a tile of pages of `units` units each.
DEVICE void unpack_bytes(KvType type, bool keys, Shared<const std::byte> from, int stride, int pages, int units,
                         Shared<uint32_t> to) {
  for (int i = thread(); i < pages * units; i += threads()) {
    const int page = i / units, unit = i % units;
    const Shared<const uint32_t> codes = cast<const uint32_t>(from + (page * stride + unit / 4 * 32 + unit % 4 * 4));
    const uint32_t low = codes[0], high = codes[4];
    const int at = page * units + (keys ? key_unit(unit) : value_unit(unit, page));
    store(to + at * 4, type == KvType::kInt8 ? int8_pairs(low, high) : fp8_pairs(low, high));
  }
}

// Keys of int4 codes, with the means of the keys before them and with their scales, rounded to bf16. scales: bf16, of page 0.
DEVICE void unpack_int4_keys(Shared<const std::byte> from, Shared<const std::byte> scales, int stride, int pages,
                             int units, Shared<uint32_t> to) {
  const int pairs = units / 4;
  for (int i = thread(); i < pages * pairs; i += threads()) {
    const int page = i / pairs, pair = i % pairs;
    const Shared<const uint32_t> codes = cast<const uint32_t>(from + page * stride) + pair / 4 * kPageTokens;
    const Shared<const uint32_t> scale_pairs = cast<const uint32_t>(scales + page * stride);
    const int first = shift_of_int4(pair % 4 * 2), second = shift_of_int4(pair % 4 * 2 + 1);
    float mean0 = 0, mean1 = 0;
    for (int four = 0; four < 4; ++four) {
      Words<4> words;
      UNROLL
      for (int j = 0; j < 4; ++j) {
        const int t = 4 * four + j;
        const uint32_t eight = codes[t], two = scale_pairs[t / 2];
        const float scale = j % 2 == 0 ? low_bf16(two) : high_bf16(two), share = mean_share(t) * scale;
        const float number0 = number_of_int4(eight >> first & 15), number1 = number_of_int4(eight >> second & 15);
        words.w[j] = pack_bf16(fma_of(scale, number0, mean0), fma_of(scale, number1, mean1));
        mean0 = fma_of(share, number0, mean0);
        mean1 = fma_of(share, number1, mean1);
      }
      store(to + (page * units + key_unit(pair * 4 + four)) * 4, words);
    }
  }
}

DEVICE void unpack_int4_values(Shared<const std::byte> from, int stride, int pages, int units, Shared<uint32_t> to) {
  for (int i = thread(); i < pages * units; i += threads()) {
    const int page = i / units, unit = i % units;
    const int block = unit / 32, pair = unit / 4 % 8, four = unit % 4;
    const Shared<const uint32_t> codes =
        cast<const uint32_t>(from + page * stride) + (block * 32 + pair / 4 * 16 + four * 4);
    const int first = shift_of_int4(pair % 4 * 2), second = shift_of_int4(pair % 4 * 2 + 1);
    Words<4> words;
    UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint32_t eight = codes[j];
      words.w[j] = pack_bf16(number_of_int4(eight >> first & 15), number_of_int4(eight >> second & 15));
    }
    store(to + (page * units + value_unit(unit, page)) * 4, words);
  }
}

}  // namespace quire::cuda
