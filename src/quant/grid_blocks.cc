// Block types whose indices stand for vectors of 4 or 8 weights. Expanded without loss: an int8 code for each weight, and
// scales that are products of a float16 and a small integer, exact in float32. Layouts: ggml-common.h of ggml.
#include <bit>
#include <cstring>

#include "base/half.h"
#include "quant/block_type.h"
#include "quant/iq_grids.h"

namespace quire {
namespace {

// A vector of 8 codes, the first in the lowest byte; of IQ3, 4 codes.
template <class Vector, size_t n, size_t count>
constexpr std::array<Vector, n> expand(const std::array<uint16_t, n>& grid, const std::array<uint8_t, count>& values) {
  constexpr int kBits = 16 / sizeof(Vector);
  std::array<Vector, n> vectors{};
  for (size_t i = 0; i < n; ++i) {
    for (int j = 0; std::cmp_less(j, sizeof(Vector)); ++j) {
      const auto index = static_cast<size_t>(grid[i] >> kBits * j & ((1 << kBits) - 1));
      vectors[i] |= static_cast<Vector>(values[index]) << 8 * j;
    }
  }
  return vectors;
}

constexpr std::array<uint8_t, 3> kIq2Values = {8, 25, 43};
constexpr auto kIq2Xxs = expand<uint64_t>(kIq2XxsGrid, kIq2Values);
constexpr auto kIq2Xs = expand<uint64_t>(kIq2XsGrid, kIq2Values);
constexpr auto kIq2S = expand<uint64_t>(kIq2SGrid, kIq2Values);
constexpr auto kIq3Xxs = expand<uint32_t>(kIq3XxsGrid, std::array<uint8_t, 8>{4, 12, 20, 28, 36, 44, 52, 62});
constexpr auto kIq3S = expand<uint32_t>(kIq3SGrid, std::array<uint8_t, 8>{1, 3, 5, 7, 9, 11, 13, 15});

// IQ1 adds 1/8 to each weight or subtracts it: eighths are integers. 0xf8 is -8.
constexpr auto kIq1Plus = expand<uint64_t>(kIq1Grid, std::array<uint8_t, 3>{0xf8 + 1, 0 + 1, 8 + 1});
constexpr auto kIq1Minus = expand<uint64_t>(kIq1Grid, std::array<uint8_t, 3>{0xf8 - 1, 0xff, 8 - 1});

// Bit j of the index is the sign of byte j: 0xff for minus.
constexpr std::array<uint64_t, 256> kSigns = [] {
  std::array<uint64_t, 256> signs{};
  for (size_t s = 0; s < 256; ++s) {
    for (int j = 0; j < 8; ++j) signs[s] |= (s >> j & 1) * (uint64_t{0xff} << 8 * j);
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

// Negates bytes: none is 0, so that adding 1 to a complement never carries out of its byte.
void store_signed(uint64_t eight, uint64_t signs, uint8_t* codes) {
  store((eight ^ signs) + (signs & 0x0101010101010101u), codes);
}

uint64_t pair(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }

uint32_t bits(float scale) { return std::bit_cast<uint32_t>(scale); }

// (scale + 1/2) * d * step
uint32_t half_step_scale(float d, uint32_t scale, float step) {
  return bits(d * (0.5F + static_cast<float>(scale)) * step);
}

// (2 * scale + 1) * d
float odd_scale(float d, uint32_t scale) { return d * static_cast<float>(2 * scale + 1); }

// {d, words[16]}: per 32 elements, four indices of 8 bits, then four of 7 signs and a 4-bit scale.
void iq2_xxs(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 8; ++group) {
    const uint8_t* indices = b + 2 + 8 * group;
    const uint32_t word = load32(indices + 4);
    out.scales[group] = half_step_scale(d, word >> 28, 0.25F);
    for (int l = 0; l < 4; ++l)
      store_signed(kIq2Xxs[indices[l]], kEvenSigns[word >> 7 * l & 127], out.codes + 32 * group + 8 * l);
  }
}

// {d, words[32], scales[8]}: a 16-bit word has an index of 9 bits and 7 signs; a nibble scales 16 elements.
void iq2_xs(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 16; ++group)
    out.scales[group] = half_step_scale(d, b[66 + group / 2] >> group % 2 * 4 & 15, 0.25F);
  for (int l = 0; l < 32; ++l) {
    const uint32_t word = load16(b + 2 + 2 * l);
    store_signed(kIq2Xs[word & 511], kEvenSigns[word >> 9], out.codes + 8 * l);
  }
}

// {d, low[32], signs[32], high[8], scales[8]}: indices of 10 bits; a nibble scales 16 elements.
void iq2_s(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 16; ++group)
    out.scales[group] = half_step_scale(d, b[74 + group / 2] >> group % 2 * 4 & 15, 0.25F);
  for (int l = 0; l < 32; ++l) {
    const size_t high = b[66 + l / 4] >> l % 4 * 2 & 3u;
    store_signed(kIq2S[b[2 + l] | high << 8], kSigns[b[34 + l]], out.codes + 8 * l);
  }
}

// {d, indices[64], words[8]}: per 32 elements, eight indices and a word of four times 7 signs and a 4-bit scale.
void iq3_xxs(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 8; ++group) {
    const uint8_t* indices = b + 2 + 8 * group;
    const uint32_t word = load32(b + 66 + 4 * group);
    out.scales[group] = half_step_scale(d, word >> 28, 0.5F);
    for (int l = 0; l < 4; ++l) {
      const uint64_t eight = pair(kIq3Xxs[indices[2 * l]], kIq3Xxs[indices[2 * l + 1]]);
      store_signed(eight, kEvenSigns[word >> 7 * l & 127], out.codes + 32 * group + 8 * l);
    }
  }
}

// {d, low[64], high[8], signs[32], scales[4]}: indices of 9 bits; a nibble scales 32 elements.
void iq3_s(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 8; ++group) {
    out.scales[group] = bits(odd_scale(d, b[106 + group / 2] >> group % 2 * 4 & 15));
    const uint8_t* low = b + 2 + 8 * group;
    const uint32_t high = b[66 + group];
    const auto four = [&](int i) { return kIq3S[low[i] | (high >> i & 1) << 8]; };
    for (int l = 0; l < 4; ++l)
      store_signed(pair(four(2 * l), four(2 * l + 1)), kSigns[b[74 + 4 * group + l]], out.codes + 32 * group + 8 * l);
  }
}

// {d, low[32], words[8]}: per 32 elements, a 16-bit word with the upper 3 bits of four indices, a 3-bit scale, and the
// sign of the eighth that is added.
void iq1_s(const uint8_t* b, const BlockParts& out) {
  const float d = f16_to_f32(load16(b));
  for (int group = 0; group < 8; ++group) {
    const uint32_t word = load16(b + 34 + 2 * group);
    out.scales[group] = bits(odd_scale(d, word >> 12 & 7) * 0.125F);
    const auto& grid = word & 0x8000 ? kIq1Minus : kIq1Plus;
    for (int l = 0; l < 4; ++l) {
      const size_t high = word >> 3 * l & 7;
      store(grid[b[2 + 4 * group + l] | high << 8], out.codes + 32 * group + 8 * l);
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
  const float d = f16_to_f32(static_cast<uint16_t>(half));
  for (int group = 0; group < 16; ++group)
    out.scales[group] = bits(odd_scale(d, words[group / 4] >> group % 4 * 3 & 7) * 0.125F);
  for (int l = 0; l < 32; ++l) {
    const uint32_t nibble = b[32 + l / 2] >> l % 2 * 4 & 15u;
    const auto& grid = nibble & 8 ? kIq1Minus : kIq1Plus;
    store(grid[b[l] | (nibble & 7) << 8], out.codes + 8 * l);
  }
}

constexpr PanelFormat scaled(int group) { return {.codes = Codes::kI8, .scale = ScaleKind::kF32, .group = group}; }

constexpr BlockType kTypes[] = {
    {TensorType::IQ1_S, scaled(32), read_blocks<iq1_s>},     {TensorType::IQ1_M, scaled(16), read_blocks<iq1_m>},
    {TensorType::IQ2_XXS, scaled(32), read_blocks<iq2_xxs>}, {TensorType::IQ2_XS, scaled(16), read_blocks<iq2_xs>},
    {TensorType::IQ2_S, scaled(16), read_blocks<iq2_s>},     {TensorType::IQ3_XXS, scaled(32), read_blocks<iq3_xxs>},
    {TensorType::IQ3_S, scaled(32), read_blocks<iq3_s>},
};

}  // namespace

std::span<const BlockType> grid_block_types() { return kTypes; }

}  // namespace quire
