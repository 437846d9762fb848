// Block types with one level of scales. Layouts: ggml-common.h of ggml.
#include <cstring>

#include "quant/block_type.h"

namespace quire {
namespace {

// 32 elements: low nibbles are the first 16, high nibbles the last 16. {d, nibbles} or {d, m, nibbles}.
void q4_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  extract_nibbles<16>(b + 2, out.codes);
}
void write_q4_0(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  join_nibbles<16>(from.codes, b + 2);
}

void q4_1(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  *out.minima = load16(b + 2);
  extract_nibbles<16>(b + 4, out.codes);
}
void write_q4_1(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  store16(*from.minima, b + 2);
  join_nibbles<16>(from.codes, b + 4);
}

// Bit j of a 32-bit word is the fifth bit of element j.
void add_fifth_bits(const uint8_t* word, uint8_t* codes) {
  for (int j = 0; j < 4; ++j) {
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * j, sizeof eight);
    eight |= spread_bits<4>(word[j]);
    std::memcpy(codes + 8 * j, &eight, sizeof eight);
  }
}
void write_fifth_bits(const uint8_t* codes, uint8_t* word) {
  for (int j = 0; j < 4; ++j) {
    unsigned bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (codes[8 * j + i] >> 4 & 1u) << i;
    word[j] = static_cast<uint8_t>(bits);
  }
}

// As Q4. {d, word, nibbles} or {d, m, word, nibbles}.
void q5_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  extract_nibbles<16>(b + 6, out.codes);
  add_fifth_bits(b + 2, out.codes);
}
void write_q5_0(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  write_fifth_bits(from.codes, b + 2);
  join_nibbles<16>(from.codes, b + 6);
}

void q5_1(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  *out.minima = load16(b + 2);
  extract_nibbles<16>(b + 8, out.codes);
  add_fifth_bits(b + 4, out.codes);
}
void write_q5_1(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  store16(*from.minima, b + 2);
  write_fifth_bits(from.codes, b + 4);
  join_nibbles<16>(from.codes, b + 8);
}

void q8_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  std::memcpy(out.codes, b + 2, 32);
}
void write_q8_0(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  std::memcpy(b + 2, from.codes, 32);
}

// {d, bits[16]}: a bit is the sign, 1 for +d and 0 for -d: the codes 2 and 0 around 1.
void q1_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  for (int j = 0; j < 16; ++j) {
    const uint64_t eight = spread_bits<1>(b[2 + j]);
    std::memcpy(out.codes + 8 * j, &eight, sizeof eight);
  }
}
void write_q1_0(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  for (int j = 0; j < 16; ++j) {
    unsigned bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (from.codes[8 * j + i] >> 1 & 1u) << i;
    b[2 + j] = static_cast<uint8_t>(bits);
  }
}

// {d, pairs[16]}: a byte holds four neighbours, the first in its low bits.
void q2_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b);
  for (int j = 0; j < 16; ++j) {
    const uint32_t byte = b[2 + j], four = (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303u;
    std::memcpy(out.codes + 4 * j, &four, sizeof four);
  }
}
void write_q2_0(const BlockParts& from, uint8_t* b) {
  store16(*from.scales, b);
  for (int j = 0; j < 16; ++j) {
    const uint8_t* c = from.codes + 4 * j;
    b[2 + j] = static_cast<uint8_t>(c[0] | c[1] << 2 | c[2] << 4 | c[3] << 6);
  }
}

// {e, nibbles}, in the order of Q4_0.
void mxfp4(const uint8_t* b, const BlockParts& out) {
  *out.scales = b[0];
  extract_nibbles<16>(b + 1, out.codes);
}
void write_mxfp4(const BlockParts& from, uint8_t* b) {
  b[0] = static_cast<uint8_t>(*from.scales);
  join_nibbles<16>(from.codes, b + 1);
}

// {scales[4], nibbles[32]}: in each group of 16, low nibbles are the first 8. ggml ignores the sign of a scale and reads
// NaN as 0; 0xff, which it reads as 480, is NaN here.
void nvfp4(const uint8_t* b, const BlockParts& out) {
  for (int group = 0; group < 4; ++group) {
    out.scales[group] = b[group] == 0x7f ? 0 : b[group] & 0x7fu;
    extract_nibbles<8>(b + 4 + 8 * group, out.codes + 16 * group);
  }
}
void write_nvfp4(const BlockParts& from, uint8_t* b) {
  for (int group = 0; group < 4; ++group) {
    b[group] = static_cast<uint8_t>(from.scales[group]);
    join_nibbles<8>(from.codes + 16 * group, b + 4 + 8 * group);
  }
}

// n bytes of base-3 digits become the n digits at `power` of 3. A byte is the fraction of the digits in 256ths, rounded
// up: multiplied by 3 it moves the next digit above the byte.
template <int n, int power>
void extract_digits(const uint8_t* __restrict from, uint8_t* __restrict to) {
  for (int j = 0; j < n; ++j) to[j] = static_cast<uint8_t>(static_cast<uint8_t>(from[j] * power) * 3 >> 8);
}

template <int n>
void extract_five_digits(const uint8_t* from, uint8_t* to) {
  extract_digits<n, 1>(from, to);
  extract_digits<n, 3>(from, to + n);
  extract_digits<n, 9>(from, to + 2 * n);
  extract_digits<n, 27>(from, to + 3 * n);
  extract_digits<n, 81>(from, to + 4 * n);
}

// The byte of digits, the first most significant, `digits` of five: their fraction in 256ths, rounded up.
template <int n, int digits>
void join_digits(const uint8_t* from, uint8_t* to) {
  for (int j = 0; j < n; ++j) {
    unsigned value = 0;
    for (int i = 0; i < 5; ++i) value = 3 * value + (i < digits ? from[n * i + j] : 0);
    to[j] = static_cast<uint8_t>((value * 256 + 242) / 243);
  }
}

// {five digits[48], four digits[4], d}: 32 and 16 bytes with five digits of 160 and 80 elements, 4 with four of 16.
void tq1_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b + 52);
  extract_five_digits<32>(b, out.codes);
  extract_five_digits<16>(b + 32, out.codes + 160);
  extract_digits<4, 1>(b + 48, out.codes + 240);
  extract_digits<4, 3>(b + 48, out.codes + 244);
  extract_digits<4, 9>(b + 48, out.codes + 248);
  extract_digits<4, 27>(b + 48, out.codes + 252);
}
void write_tq1_0(const BlockParts& from, uint8_t* b) {
  join_digits<32, 5>(from.codes, b);
  join_digits<16, 5>(from.codes + 160, b + 32);
  join_digits<4, 4>(from.codes + 240, b + 48);
  store16(*from.scales, b + 52);
}

// {pairs[64], d}: 32 bytes hold four runs of 32, the first in their low bits.
void tq2_0(const uint8_t* b, const BlockParts& out) {
  *out.scales = load16(b + 64);
  for (int half = 0; half < 2; ++half) {
    unroll<4>([&](auto run) { extract<32, 2 * run, 2>(b + 32 * half, out.codes + 128 * half + 32 * run); });
  }
}
void write_tq2_0(const BlockParts& from, uint8_t* b) {
  for (int half = 0; half < 2; ++half) join_pairs(from.codes + 128 * half, b + 32 * half);
  store16(*from.scales, b + 64);
}

constexpr PanelFormat around(int zero, Codes codes, int group) {
  return {.codes = codes, .scale = ScaleKind::kF16, .zero = zero, .group = group};
}
constexpr PanelFormat with_minima(Codes codes, int group) {
  return {.codes = codes, .scale = ScaleKind::kF16, .zeros = ZeroKind::kF16, .group = group};
}
constexpr PanelFormat of_table(const std::array<float, 16>& table, ScaleKind scale, int group) {
  return {.codes = Codes::kTable4, .scale = scale, .group = group, .table = table};
}

constexpr BlockType kFlatBlockTypes[] = {
    {TensorType::Q4_0, around(8, Codes::kU4, 32), read_blocks<q4_0>, write_blocks<write_q4_0>, fit_flat},
    {TensorType::Q4_1, with_minima(Codes::kU4, 32), read_blocks<q4_1>, write_blocks<write_q4_1>, fit_flat_affine},
    {TensorType::Q5_0, around(16, Codes::kU5, 32), read_blocks<q5_0>, write_blocks<write_q5_0>, fit_flat},
    {TensorType::Q5_1, with_minima(Codes::kU5, 32), read_blocks<q5_1>, write_blocks<write_q5_1>, fit_flat_affine},
    {TensorType::Q8_0, around(0, Codes::kI8, 32), read_blocks<q8_0>, write_blocks<write_q8_0>, fit_q8_0},
    {TensorType::Q1_0, around(1, Codes::kU2, 128), read_blocks<q1_0>, write_blocks<write_q1_0>, fit_signs},
    {TensorType::Q2_0, around(1, Codes::kU2, 64), read_blocks<q2_0>, write_blocks<write_q2_0>, fit_flat},
    {TensorType::TQ1_0, around(1, Codes::kU2, 256), read_blocks<tq1_0>, write_blocks<write_tq1_0>, fit_ternary},
    {TensorType::TQ2_0, around(1, Codes::kU2, 256), read_blocks<tq2_0>, write_blocks<write_tq2_0>, fit_ternary},
    {TensorType::IQ4_NL, of_table(kIq4Table, ScaleKind::kF16, 32), read_blocks<q4_0>, write_blocks<write_q4_0>,
     fit_flat},
    {TensorType::MXFP4, of_table(kDoubledE2M1, ScaleKind::kE8M0, 32), read_blocks<mxfp4>, write_blocks<write_mxfp4>,
     fit_float4},
    {TensorType::NVFP4, of_table(kDoubledE2M1, ScaleKind::kE4M3, 16), read_blocks<nvfp4>, write_blocks<write_nvfp4>,
     fit_float4, 0.5F},
};

}  // namespace

std::span<const BlockType> flat_block_types() { return kFlatBlockTypes; }

}  // namespace quire
