// What gguf_blocks.cc knows of each block type. The families of types define theirs in files of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/tensor_type.h"
#include "quant/fit/fit.h"
#include "quant/panel_format.h"

namespace quire {

// Where the parts of one block go: as in CodedRow, at the block's first element, group and super-block.
struct BlockParts {
  uint8_t* codes;
  uint32_t* scales;
  uint32_t* minima;
  uint16_t* super;
  uint16_t* super_minimum;
};

struct BlockType {
  TensorType type;
  PanelFormat format;
  void (*read)(const BlockType& type, const uint8_t* row, const CodedRow& out);
  // The reverse: puts parts that `fit` gave together. row: as many blocks as `from` has.
  void (*write)(const BlockType& type, const CodedRow& from, uint8_t* row) = nullptr;
  Fit fit = nullptr;  // finds the parts for weights
  float factor = 1;   // multiplies kE4M3 and kSuper scales
};

// The table of IQ4_NL and IQ4_XS.
inline constexpr std::array<float, 16> kIq4Table = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};
// The integers of E2M1, doubled: the sign is the top bit. Of MXFP4 and NVFP4.
inline constexpr std::array<float, 16> kDoubledE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

std::span<const BlockType> flat_block_types();  // one level of scales: Q4_0 and the like, 4-bit floats, ternary
std::span<const BlockType> k_block_types();     // integer scales in super-blocks of 256: Q2_K .. Q6_K, IQ4_XS
std::span<const BlockType> grid_block_types();  // codes from a table of vectors: IQ1_S .. IQ3_S

// Calls f(block, its parts) for the blocks of a row.
template <class Byte, class F>
void for_each_block(const BlockType& type, Byte* row, const CodedRow& parts, const F& f) {
  const size_t elements = info(type.type).block_elements, bytes = info(type.type).block_bytes;
  const size_t groups = elements / static_cast<size_t>(type.format.group);
  BlockParts at{parts.codes.data(), parts.scales.data(), parts.minima.data(), parts.supers.data(),
                parts.super_minima.data()};
  Byte* end = row + parts.codes.size() / elements * bytes;
  for (Byte* block = row; block != end; block += bytes) {
    f(block, at);
    at.codes += elements;
    at.scales += groups;
    if (at.minima) at.minima += groups;
    if (at.super) ++at.super;
    if (at.super_minimum) ++at.super_minimum;
  }
}

// BlockType::read for a type whose blocks `read_block` takes apart.
template <void (*read_block)(const uint8_t* block, const BlockParts& out)>
void read_blocks(const BlockType& type, const uint8_t* row, const CodedRow& out) {
  for_each_block(type, row, out, read_block);
}

// BlockType::write for a type whose blocks `write_block` puts together.
template <void (*write_block)(const BlockParts& from, uint8_t* block)>
void write_blocks(const BlockType& type, const CodedRow& from, uint8_t* row) {
  for_each_block(type, row, from, [](uint8_t* block, const BlockParts& parts) { write_block(parts, block); });
}

inline uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store16(uint32_t value, uint8_t* p) {
  const auto low = static_cast<uint16_t>(value);
  std::memcpy(p, &low, sizeof low);
}

// to[j] = the `bits` bits of from[j] at `shift`. Shifts are constants: only then does the compiler vectorize.
template <int n, int shift, int bits>
void extract(const uint8_t* __restrict from, uint8_t* __restrict to) {
  for (int j = 0; j < n; ++j) to[j] = static_cast<uint8_t>(from[j] >> shift & ((1 << bits) - 1));
}

// to[j] |= those bits << at.
template <int n, int shift, int bits, int at>
void extract_above(const uint8_t* __restrict from, uint8_t* __restrict to) {
  for (int j = 0; j < n; ++j) to[j] = static_cast<uint8_t>(to[j] | (from[j] >> shift & ((1 << bits) - 1)) << at);
}

// n low nibbles, then n high ones.
template <int n>
void extract_nibbles(const uint8_t* from, uint8_t* to) {
  extract<n, 0, 4>(from, to);
  extract<n, 4, 4>(from, to + n);
}

// The reverse: n bytes from 2n codes below 16.
template <int n>
void join_nibbles(const uint8_t* from, uint8_t* to) {
  for (int j = 0; j < n; ++j) to[j] = static_cast<uint8_t>((from[j] & 15) | from[j + n] << 4);
}

// 32 bytes from four runs of 32 codes below 4, the first in their low bits.
inline void join_pairs(const uint8_t* from, uint8_t* to) {
  for (int j = 0; j < 32; ++j)
    to[j] = static_cast<uint8_t>((from[j] & 3) | (from[j + 32] & 3) << 2 | (from[j + 64] & 3) << 4 |
                                 (from[j + 96] & 3) << 6);
}

// Calls f(0) .. f(n - 1) with arguments that are constants.
template <int n, class F>
void unroll(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>{}), ...); }
  (std::make_integer_sequence<int, n>{});
}

// Bit i of `bits`, moved into byte i at bit `at`.
template <int at>
uint64_t spread_bits(uint8_t bits) {
  const uint64_t one_of_each = bits * 0x0101010101010101u & 0x8040201008040201u;
  const uint64_t top = (one_of_each + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u;  // carries within bytes only
  return top >> (7 - at);
}

}  // namespace quire
