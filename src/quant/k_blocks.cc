// Block types of 256 elements with integer scales under float16 ones. Layouts: ggml-common.h of ggml.
#include <cstring>

#include "quant/block_type.h"

namespace quire {
namespace {

// {scales[16], pairs[64], d, dmin}: a scale in a byte's low nibble, a minimum in its high one. 32 bytes of pairs hold
// four runs of 32 elements, the first in their low bits.
void q2_k(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b + 80);
  *out.super_minimum = load16(b + 82);
  for (int group = 0; group < 16; ++group) {
    out.scales[group] = b[group] & 15u;
    out.minima[group] = b[group] >> 4;
  }
  for (int half = 0; half < 2; ++half) {
    unroll<4>([&](auto run) { extract<32, 2 * run, 2>(b + 16 + 32 * half, out.codes + 128 * half + 32 * run); });
  }
}
void write_q2_k(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b + 80);
  store16(*from.super_minimum, b + 82);
  for (int group = 0; group < 16; ++group)
    b[group] = static_cast<uint8_t>(from.scales[group] | from.minima[group] << 4);
  for (int half = 0; half < 2; ++half) join_pairs(from.codes + 128 * half, b + 16 + 32 * half);
}

// {high[32], pairs[64], scales[12], d}: pairs as in Q2_K; bit r of high[l] is the third bit of element l of run r. Low
// nibbles of 16 scales are in 8 bytes, their upper bit pairs in 4.
void q3_k(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b + 108);
  const uint8_t* scales = b + 96;
  for (int group = 0; group < 16; ++group) {
    const int low = scales[group % 8] >> group / 8 * 4 & 15, high = scales[8 + group % 4] >> group / 4 * 2 & 3;
    out.scales[group] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  unroll<8>([&](auto run) {
    extract<32, run % 4 * 2, 2>(b + 32 + run / 4 * 32, out.codes + 32 * run);
    extract_above<32, run, 1, 2>(b, out.codes + 32 * run);
  });
}
void write_q3_k(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b + 108);
  std::memset(b, 0, 32);
  std::memset(b + 96, 0, 12);
  for (int group = 0; group < 16; ++group) {
    const unsigned scale = static_cast<uint8_t>(from.scales[group] + 32);
    b[96 + group % 8] |= static_cast<uint8_t>((scale & 15) << group / 8 * 4);
    b[104 + group % 4] |= static_cast<uint8_t>(scale >> 4 << group / 4 * 2);
  }
  for (int half = 0; half < 2; ++half) join_pairs(from.codes + 128 * half, b + 32 + 32 * half);
  unroll<8>([&](auto run) { extract_above<32, 2, 1, run>(from.codes + 32 * run, b); });
}

// Eight pairs of a 6-bit scale and a 6-bit minimum in the 12 bytes of Q4_K and Q5_K.
void read_scales(const uint8_t* s, const BlockParts& out) {
  for (int j = 0; j < 4; ++j) {
    out.scales[j] = s[j] & 63u;
    out.minima[j] = s[j + 4] & 63u;
    out.scales[j + 4] = (s[j + 8] & 15u) | (s[j] & 0xc0u) >> 2;
    out.minima[j + 4] = uint32_t{s[j + 8]} >> 4 | (s[j + 4] & 0xc0u) >> 2;
  }
}
void write_scales(const BlockParts& from, uint8_t* s) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t scale = from.scales[j + 4], minimum = from.minima[j + 4];
    s[j] = static_cast<uint8_t>(from.scales[j] | scale >> 4 << 6);
    s[j + 4] = static_cast<uint8_t>(from.minima[j] | minimum >> 4 << 6);
    s[j + 8] = static_cast<uint8_t>((scale & 15) | minimum << 4);
  }
}

// {d, dmin, scales[12], nibbles[128]}: 32 bytes hold two groups of 32, low nibbles first.
void q4_k(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  *out.super_minimum = load16(b + 2);
  read_scales(b + 4, out);
  for (int pair = 0; pair < 4; ++pair) extract_nibbles<32>(b + 16 + 32 * pair, out.codes + 64 * pair);
}
void write_q4_k(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b);
  store16(*from.super_minimum, b + 2);
  write_scales(from, b + 4);
  for (int pair = 0; pair < 4; ++pair) join_nibbles<32>(from.codes + 64 * pair, b + 16 + 32 * pair);
}

// {d, dmin, scales[12], high[32], nibbles[128]}: bit g of high[l] is the fifth bit of element l of group g.
void q5_k(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  *out.super_minimum = load16(b + 2);
  read_scales(b + 4, out);
  for (int pair = 0; pair < 4; ++pair) extract_nibbles<32>(b + 48 + 32 * pair, out.codes + 64 * pair);
  unroll<8>([&](auto group) { extract_above<32, group, 1, 4>(b + 16, out.codes + 32 * group); });
}
void write_q5_k(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b);
  store16(*from.super_minimum, b + 2);
  write_scales(from, b + 4);
  std::memset(b + 16, 0, 32);
  for (int pair = 0; pair < 4; ++pair) join_nibbles<32>(from.codes + 64 * pair, b + 48 + 32 * pair);
  unroll<8>([&](auto group) { extract_above<32, 4, 1, group>(from.codes + 32 * group, b + 16); });
}

// {low[128], high[64], int8 scales[16], d}: per 128 elements, 64 bytes of low nibbles and 32 bytes of high bit pairs.
void q6_k(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b + 208);
  for (int group = 0; group < 16; ++group) out.scales[group] = b[192 + group];
  for (int half = 0; half < 2; ++half) {
    extract_nibbles<64>(b + 64 * half, out.codes + 128 * half);
    unroll<4>([&](auto quarter) {
      extract_above<32, 2 * quarter, 2, 4>(b + 128 + 32 * half, out.codes + 128 * half + 32 * quarter);
    });
  }
}
void write_q6_k(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b + 208);
  for (int group = 0; group < 16; ++group) b[192 + group] = static_cast<uint8_t>(from.scales[group]);
  std::memset(b + 128, 0, 64);
  for (int half = 0; half < 2; ++half) {
    join_nibbles<64>(from.codes + 128 * half, b + 64 * half);
    unroll<4>([&](auto quarter) {
      extract_above<32, 4, 2, 2 * quarter>(from.codes + 128 * half + 32 * quarter, b + 128 + 32 * half);
    });
  }
}

// {d, high, low[4], nibbles[128]}: per group of 32, a 6-bit scale and nibbles in the order of Q4_0.
void iq4_xs(const uint8_t* b, const BlockParts& out) {
  *out.super = load16(b);
  const uint32_t high = load16(b + 2);
  for (int group = 0; group < 8; ++group) {
    const uint32_t low = b[4 + group / 2] >> group % 2 * 4 & 15u;
    out.scales[group] = static_cast<uint8_t>((low | (high >> 2 * group & 3) << 4) - 32);
    extract_nibbles<16>(b + 8 + 16 * group, out.codes + 32 * group);
  }
}
void write_iq4_xs(const BlockParts& from, uint8_t* b) {
  store16(*from.super, b);
  unsigned high = 0;
  std::memset(b + 4, 0, 4);
  for (int group = 0; group < 8; ++group) {
    const unsigned scale = static_cast<uint8_t>(from.scales[group] + 32);
    b[4 + group / 2] |= static_cast<uint8_t>((scale & 15) << group % 2 * 4);
    high |= scale >> 4 << 2 * group;
    join_nibbles<16>(from.codes + 32 * group, b + 8 + 16 * group);
  }
  store16(high, b + 2);
}

constexpr PanelFormat with_super_minima(Codes codes, int group) {
  return {.codes = codes, .scale = ScaleKind::kSuper, .zeros = ZeroKind::kSuper, .group = group};
}
constexpr PanelFormat super_around(int zero, Codes codes, int group) {
  return {.codes = codes, .scale = ScaleKind::kSuper, .zero = zero, .group = group};
}
constexpr PanelFormat kIq4Xs = {.codes = Codes::kTable4, .scale = ScaleKind::kSuper, .group = 32, .table = kIq4Table};

constexpr BlockType kKBlockTypes[] = {
    {TensorType::Q2_K, with_super_minima(Codes::kU2, 16), read_blocks<q2_k>, write_blocks<write_q2_k>,
     fit_super_affine},
    {TensorType::Q3_K, super_around(4, Codes::kU3, 16), read_blocks<q3_k>, write_blocks<write_q3_k>, fit_super},
    {TensorType::Q4_K, with_super_minima(Codes::kU4, 32), read_blocks<q4_k>, write_blocks<write_q4_k>,
     fit_super_affine},
    {TensorType::Q5_K, with_super_minima(Codes::kU5, 32), read_blocks<q5_k>, write_blocks<write_q5_k>,
     fit_super_affine},
    {TensorType::Q6_K, super_around(32, Codes::kU6, 16), read_blocks<q6_k>, write_blocks<write_q6_k>, fit_super},
    {TensorType::IQ4_XS, kIq4Xs, read_blocks<iq4_xs>, write_blocks<write_iq4_xs>, fit_super},
};

}  // namespace

std::span<const BlockType> k_block_types() { return kKBlockTypes; }

}  // namespace quire
