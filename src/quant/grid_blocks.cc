// Block types whose indices stand for vectors of 4 or 8 weights. Each weight is one of at most 16 integers, so the vectors
// are expanded, without loss, to 4-bit codes of a table. Scales are odd integers times a float16, a power of two apart.
// Layouts: ggml-common.h of ggml.
#include <bit>
#include <cstring>

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

void store(uint64_t eight, uint8_t* codes) { std::memcpy(codes, &eight, sizeof eight); }

uint64_t pair(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

// Of 4-bit or 3-bit scales.
uint32_t odd(uint32_t scale) { return 2 * scale + 1; }

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

// {d, words[32], scales[8]}: a 16-bit word has an index of 9 bits and 7 signs; a nibble scales 16 elements.
void iq2_xs(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  for (int group = 0; group < 16; ++group) out.scales[group] = odd(b[66 + group / 2] >> group % 2 * 4 & 15);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = load16(b + 2 + 2 * l);
    store(kIq2Xs[word & 511] | kEvenSigns[word >> 9], out.codes + 8 * l);
  }
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

constexpr PanelFormat coded(const std::array<float, 16>& table, int group) {
  return {.codes = Codes::kTable4, .scale = ScaleKind::kSuper, .group = group, .table = table};
}

// ggml's scales are (scale + 1/2) * d / 4 (IQ2), (scale + 1/2) * d / 2 (IQ3_XXS) and (2 * scale + 1) * d.
constexpr BlockType kGridBlockTypes[] = {
    {TensorType::IQ1_S, coded(kIq1Table, 32), read_blocks<iq1_s>, nullptr, nullptr, 0.125F},
    {TensorType::IQ1_M, coded(kIq1Table, 16), read_blocks<iq1_m>, nullptr, nullptr, 0.125F},
    {TensorType::IQ2_XXS, coded(kIq2Table, 32), read_blocks<iq2_xxs>, nullptr, nullptr, 0.125F},
    {TensorType::IQ2_XS, coded(kIq2Table, 16), read_blocks<iq2_xs>, nullptr, nullptr, 0.125F},
    {TensorType::IQ2_S, coded(kIq2Table, 16), read_blocks<iq2_s>, nullptr, nullptr, 0.125F},
    {TensorType::IQ3_XXS, coded(kIq3XxsTable, 32), read_blocks<iq3_xxs>, nullptr, nullptr, 0.25F},
    {TensorType::IQ3_S, coded(kIq3STable, 32), read_blocks<iq3_s>},
};

}  // namespace

std::span<const BlockType> grid_block_types() { return kGridBlockTypes; }

}  // namespace quire
