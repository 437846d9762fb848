// Block types whose indices stand for vectors of 4 or 8 weights. Each weight is one of at most 16 integers, so the vectors
// are expanded, without loss, to 4-bit codes of a table. Scales are odd integers times a float16, a power of two apart.
// Layouts: ggml-common.h of ggml.
#include <bit>
#include <cstring>
#include <vector>

#include "quant/block_type.h"
#include "quant/iq_grids.h"

namespace quire {
namespace {

constexpr uint8_t kMinus = 8;  // in a code: the second half of the table

// A vector of 8 codes, the first in the lowest byte; of IQ3, 4 codes.
template <class Vector, size_t n>
constexpr std::array<Vector, n> expand(const std::array<uint16_t, n>& grid) {
  constexpr int kBits = 16 / sizeof(Vector);
  std::array<Vector, n> vectors{};
  for (size_t i = 0; i < n; ++i) {
    for (int j = 0; std::cmp_less(j, sizeof(Vector)); ++j)
      vectors[i] |= static_cast<Vector>(grid[i] >> kBits * j & ((1 << kBits) - 1)) << 8 * j;
  }
  return vectors;
}
constexpr auto kIq2Xxs = expand<uint64_t>(kIq2XxsGrid);
constexpr auto kIq2Xs = expand<uint64_t>(kIq2XsGrid);
constexpr auto kIq2S = expand<uint64_t>(kIq2SGrid);
constexpr auto kIq3Xxs = expand<uint32_t>(kIq3XxsGrid);
constexpr auto kIq3S = expand<uint32_t>(kIq3SGrid);
constexpr auto kIq1 = expand<uint64_t>(kIq1Grid);

// Magnitudes, then the same negated.
constexpr std::array<float, 16> with_signs(std::array<float, 8> values) {
  std::array<float, 16> table{};
  for (size_t i = 0; i < 8; ++i) table[i] = values[i], table[i + kMinus] = 0 - values[i];
  return table;
}
constexpr auto kIq2Table = with_signs({8, 25, 43});
constexpr auto kIq3XxsTable = with_signs({4, 12, 20, 28, 36, 44, 52, 62});
constexpr auto kIq3STable = with_signs({1, 3, 5, 7, 9, 11, 13, 15});
// IQ1 adds 1/8 to -1, 0 and 1 or subtracts it: eighths are integers.
constexpr std::array<float, 16> kIq1Table = {-7, 1, 9, 0, 0, 0, 0, 0, -9, -1, 7};

// Bit j of the index is the sign of byte j: kMinus or 0.
constexpr std::array<uint64_t, 256> kSigns = [] {
  std::array<uint64_t, 256> signs{};
  for (size_t s = 0; s < 256; ++s) {
    for (int j = 0; j < 8; ++j) signs[s] |= (s >> j & 1) * (uint64_t{kMinus} << 8 * j);
  }
  return signs;
}();

// Seven signs; the eighth makes the number of minuses even.
constexpr std::array<uint64_t, 128> kEvenSigns = [] {
  std::array<uint64_t, 128> signs{};
  for (size_t s = 0; s < 128; ++s) signs[s] = kSigns[std::popcount(s) % 2 == 0 ? s : s | 128];
  return signs;
}();

// The index of each vector of a grid, by its packed elements.
template <size_t n>
std::vector<uint16_t> indices_of(const std::array<uint16_t, n>& grid) {
  std::vector<uint16_t> indices(size_t{1} << 16);
  for (size_t i = 0; i < n; ++i) indices[grid[i]] = static_cast<uint16_t>(i);
  return indices;
}
// The elements of 8 or 4 codes, packed as in a grid; signs are left out.
template <int dims>
size_t packed(const uint8_t* codes) {
  size_t bits = 0;
  for (int i = 0; i < dims; ++i) bits |= static_cast<size_t>(codes[i] & 7) << 16 / dims * i;
  return bits;
}
// Bit j is set where code j is negative.
unsigned signs_of(const uint8_t* codes) {
  unsigned signs = 0;
  for (int i = 0; i < 8; ++i) signs |= (codes[i] & kMinus ? 1u : 0u) << i;
  return signs;
}

void store(uint64_t eight, uint8_t* codes) { std::memcpy(codes, &eight, sizeof eight); }

uint64_t pair(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

// Of 4-bit or 3-bit scales.
uint32_t odd(uint32_t scale) { return 2 * scale + 1; }
uint32_t half_of_odd(uint32_t integer) { return integer / 2; }

void write_nibbles(const uint32_t* odd_integers, int count, uint8_t* to) {
  for (int i = 0; i < count; i += 2)
    to[i / 2] = static_cast<uint8_t>(half_of_odd(odd_integers[i]) | half_of_odd(odd_integers[i + 1]) << 4);
}

void store32(uint32_t value, uint8_t* p) { std::memcpy(p, &value, sizeof value); }

// {d, words[16]}: per 32 elements, four indices of 8 bits, then four of 7 signs and a 4-bit scale.
void iq2_xxs(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* indices = b + 2 + 8 * group;
    const uint32_t word = load32(indices + 4);
    out.scales[group] = odd(word >> 28);
    for (int l = 0; l < 4; ++l)
      store(kIq2Xxs[indices[l]] | kEvenSigns[word >> 7 * l & 127], out.codes + 32 * group + 8 * l);
  }
}
void write_iq2_xxs(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq2XxsGrid);
  store16(*from.super, b);
  for (int group = 0; group < 8; ++group) {
    uint8_t* to = b + 2 + 8 * group;
    uint32_t word = half_of_odd(from.scales[group]) << 28;
    for (int l = 0; l < 4; ++l) {
      const uint8_t* codes = from.codes + 32 * group + 8 * l;
      to[l] = static_cast<uint8_t>(indices[packed<8>(codes)]);
      word |= (signs_of(codes) & 127u) << 7 * l;
    }
    store32(word, to + 4);
  }
}

// {d, words[32], scales[8]}: a 16-bit word has an index of 9 bits and 7 signs; a nibble scales 16 elements.
void iq2_xs(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 16; ++group) out.scales[group] = odd(b[66 + group / 2] >> group % 2 * 4 & 15);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = load16(b + 2 + 2 * l);
    store(kIq2Xs[word & 511] | kEvenSigns[word >> 9], out.codes + 8 * l);
  }
}
void write_iq2_xs(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq2XsGrid);
  store16(*from.super, b);
  for (int l = 0; l < 32; ++l) {
    const uint8_t* codes = from.codes + 8 * l;
    store16(indices[packed<8>(codes)] | (signs_of(codes) & 127u) << 9, b + 2 + 2 * l);
  }
  write_nibbles(from.scales, 16, b + 66);
}

// {d, low[32], signs[32], high[8], scales[8]}: indices of 10 bits; a nibble scales 16 elements.
void iq2_s(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 16; ++group) out.scales[group] = odd(b[74 + group / 2] >> group % 2 * 4 & 15);
  for (int l = 0; l < 32; ++l) {
    const size_t high = b[66 + l / 4] >> l % 4 * 2 & 3u;
    store(kIq2S[b[2 + l] | high << 8] | kSigns[b[34 + l]], out.codes + 8 * l);
  }
}
void write_iq2_s(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq2SGrid);
  store16(*from.super, b);
  std::memset(b + 66, 0, 8);
  for (int l = 0; l < 32; ++l) {
    const uint8_t* codes = from.codes + 8 * l;
    const unsigned index = indices[packed<8>(codes)];
    b[2 + l] = static_cast<uint8_t>(index);
    b[34 + l] = static_cast<uint8_t>(signs_of(codes));
    b[66 + l / 4] |= static_cast<uint8_t>(index >> 8 << l % 4 * 2);
  }
  write_nibbles(from.scales, 16, b + 74);
}

// {d, indices[64], words[8]}: per 32 elements, eight indices and a word of four times 7 signs and a 4-bit scale.
void iq3_xxs(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* indices = b + 2 + 8 * group;
    const uint32_t word = load32(b + 66 + 4 * group);
    out.scales[group] = odd(word >> 28);
    for (int l = 0; l < 4; ++l) {
      const uint64_t eight = pair(kIq3Xxs[indices[2 * l]], kIq3Xxs[indices[2 * l + 1]]);
      store(eight | kEvenSigns[word >> 7 * l & 127], out.codes + 32 * group + 8 * l);
    }
  }
}
void write_iq3_xxs(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq3XxsGrid);
  store16(*from.super, b);
  for (int group = 0; group < 8; ++group) {
    uint32_t word = half_of_odd(from.scales[group]) << 28;
    for (int l = 0; l < 4; ++l) {
      const uint8_t* codes = from.codes + 32 * group + 8 * l;
      for (int i = 0; i < 2; ++i)
        b[2 + 8 * group + 2 * l + i] = static_cast<uint8_t>(indices[packed<4>(codes + 4 * i)]);
      word |= (signs_of(codes) & 127u) << 7 * l;
    }
    store32(word, b + 66 + 4 * group);
  }
}

// {d, low[64], high[8], signs[32], scales[4]}: indices of 9 bits; a nibble scales 32 elements.
void iq3_s(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 8; ++group) {
    out.scales[group] = odd(b[106 + group / 2] >> group % 2 * 4 & 15);
    const uint8_t* low = b + 2 + 8 * group;
    const uint32_t high = b[66 + group];
    const auto four = [&](int i) { return kIq3S[low[i] | (high >> i & 1) << 8]; };
    for (int l = 0; l < 4; ++l)
      store(pair(four(2 * l), four(2 * l + 1)) | kSigns[b[74 + 4 * group + l]], out.codes + 32 * group + 8 * l);
  }
}
void write_iq3_s(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq3SGrid);
  store16(*from.super, b);
  write_nibbles(from.scales, 8, b + 106);
  for (int group = 0; group < 8; ++group) {
    unsigned high = 0;
    for (int i = 0; i < 8; ++i) {
      const unsigned index = indices[packed<4>(from.codes + 32 * group + 4 * i)];
      b[2 + 8 * group + i] = static_cast<uint8_t>(index);
      high |= index >> 8 << i;
    }
    b[66 + group] = static_cast<uint8_t>(high);
    for (int l = 0; l < 4; ++l) b[74 + 4 * group + l] = static_cast<uint8_t>(signs_of(from.codes + 32 * group + 8 * l));
  }
}

// {d, low[32], words[8]}: per 32 elements, a 16-bit word with the upper 3 bits of four indices, a 3-bit scale, and the
// sign of the eighth that is added.
void iq1_s(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = load16(b + 34 + 2 * group);
    out.scales[group] = odd(word >> 12 & 7);
    const uint64_t signs = kSigns[word & 0x8000 ? 255 : 0];
    for (int l = 0; l < 4; ++l) {
      const size_t high = word >> 3 * l & 7;
      store(kIq1[b[2 + 4 * group + l] | high << 8] | signs, out.codes + 32 * group + 8 * l);
    }
  }
}
void write_iq1_s(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq1Grid);
  store16(*from.super, b);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* codes = from.codes + 32 * group;
    uint32_t word = half_of_odd(from.scales[group]) << 12 | (codes[0] & kMinus ? 0x8000u : 0u);
    for (int l = 0; l < 4; ++l) {
      const uint32_t index = indices[packed<8>(codes + 8 * l)];
      b[2 + 4 * group + l] = static_cast<uint8_t>(index);
      word |= index >> 8 << 3 * l;
    }
    store16(word, b + 34 + 2 * group);
  }
}

// {low[32], high[16], words[4]}: a nibble has the upper 3 bits of an index and the sign of its eighth. A 16-bit word has
// four 3-bit scales of 16 elements and, above them, a nibble of d.
void iq1_m(const uint8_t* b, const BlockParts& out) {
  uint32_t words[4], half = 0;
  for (int i = 0; i < 4; ++i) {
    words[i] = load16(b + 48 + 2 * i);
    half |= words[i] >> 12 << 4 * i;
  }
  *out.super = static_cast<uint16_t>(half);
  for (int group = 0; group < 16; ++group) out.scales[group] = odd(words[group / 4] >> group % 4 * 3 & 7);
  for (int l = 0; l < 32; ++l) {
    const uint32_t nibble = b[32 + l / 2] >> l % 2 * 4 & 15u;
    store(kIq1[b[l] | (nibble & 7) << 8] | kSigns[nibble & 8 ? 255 : 0], out.codes + 8 * l);
  }
}
void write_iq1_m(const BlockParts& from, uint8_t* b) {
  static const std::vector<uint16_t> indices = indices_of(kIq1Grid);
  for (int i = 0; i < 4; ++i) {
    uint32_t word = (static_cast<uint32_t>(*from.super) >> 4 * i & 15u) << 12;
    for (int j = 0; j < 4; ++j) word |= half_of_odd(from.scales[4 * i + j]) << 3 * j;
    store16(word, b + 48 + 2 * i);
  }
  std::memset(b + 32, 0, 16);
  for (int l = 0; l < 32; ++l) {
    const uint8_t* codes = from.codes + 8 * l;
    const unsigned index = indices[packed<8>(codes)];
    b[l] = static_cast<uint8_t>(index);
    b[32 + l / 2] |= static_cast<uint8_t>((index >> 8 | (codes[0] & kMinus)) << l % 2 * 4);
  }
}

constexpr PanelFormat coded(const std::array<float, 16>& table, int group) {
  return {.codes = Codes::kTable4, .scale = ScaleKind::kSuper, .group = group, .table = table};
}

// ggml's scales are (scale + 1/2) * d / 4 (IQ2), (scale + 1/2) * d / 2 (IQ3_XXS) and (2 * scale + 1) * d.
constexpr BlockType kGridBlockTypes[] = {
    {TensorType::IQ1_S, coded(kIq1Table, 32), read_blocks<iq1_s>, write_blocks<write_iq1_s>, fit_lattice, 0.125F},
    {TensorType::IQ1_M, coded(kIq1Table, 16), read_blocks<iq1_m>, write_blocks<write_iq1_m>, fit_lattice, 0.125F},
    {TensorType::IQ2_XXS, coded(kIq2Table, 32), read_blocks<iq2_xxs>, write_blocks<write_iq2_xxs>, fit_lattice, 0.125F},
    {TensorType::IQ2_XS, coded(kIq2Table, 16), read_blocks<iq2_xs>, write_blocks<write_iq2_xs>, fit_lattice, 0.125F},
    {TensorType::IQ2_S, coded(kIq2Table, 16), read_blocks<iq2_s>, write_blocks<write_iq2_s>, fit_lattice, 0.125F},
    {TensorType::IQ3_XXS, coded(kIq3XxsTable, 32), read_blocks<iq3_xxs>, write_blocks<write_iq3_xxs>, fit_lattice,
     0.25F},
    {TensorType::IQ3_S, coded(kIq3STable, 32), read_blocks<iq3_s>, write_blocks<write_iq3_s>, fit_lattice},
};

}  // namespace

std::span<const BlockType> grid_block_types() { return kGridBlockTypes; }

}  // namespace quire
