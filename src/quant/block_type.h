// What gguf_blocks.cc knows of each block type. The families of types define theirs in files of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/tensor_type.h"
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
  float factor = 1;  // multiplies kE4M3 and kSuper scales
};

// The table of IQ4_NL and IQ4_XS.
inline constexpr std::array<float, 16> kIq4Table = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};

std::span<const BlockType> flat_block_types();  // one level of scales: Q4_0 and the like, 4-bit floats, ternary
std::span<const BlockType> k_block_types();     // integer scales in super-blocks of 256: Q2_K .. Q6_K, IQ4_XS
std::span<const BlockType> grid_block_types();  // codes from a table of vectors: IQ1_S .. IQ3_S

// BlockType::read for a type whose blocks `read_block` takes apart.
template <void (*read_block)(const uint8_t* block, const BlockParts& out)>
void read_blocks(const BlockType& type, const uint8_t* row, const CodedRow& out) {
  const size_t elements = info(type.type).block_elements, bytes = info(type.type).block_bytes;
  const size_t groups = elements / static_cast<size_t>(type.format.group);
  BlockParts to{out.codes.data(), out.scales.data(), out.minima.data(), out.supers.data(), out.super_minima.data()};
  const uint8_t* end = row + out.codes.size() / elements * bytes;
  for (const uint8_t* block = row; block != end; block += bytes) {
    read_block(block, to);
    to.codes += elements;
    to.scales += groups;
    if (to.minima) to.minima += groups;
    if (to.super) ++to.super;
    if (to.super_minimum) ++to.super_minimum;
  }
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
