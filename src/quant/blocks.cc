#include "quant/blocks.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace quire {
namespace {

// Reads one block and writes its elements.
using BlockReader = void (*)(const uint8_t* block, float* out);

uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
float f16(const uint8_t* p) { return f16_to_f32(load16(p)); }

// 32 elements: low nibbles are the first 16, high nibbles the last 16. {d, nibbles} or {d, m, nibbles}.
void q4_0(const uint8_t* b, float* out) {
  const float d = f16(b);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b[2 + j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((b[2 + j] >> 4) - 8) * d;
  }
}

void q4_1(const uint8_t* b, float* out) {
  const float d = f16(b), m = f16(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(b[4 + j] & 15) * d + m;
    out[j + 16] = static_cast<float>(b[4 + j] >> 4) * d + m;
  }
}

// As Q4; bit j of a 32-bit word is the fifth bit of element j. {d, word, nibbles} or {d, m, word, nibbles}.
void q5_0(const uint8_t* b, float* out) {
  const float d = f16(b);
  const uint32_t high = load32(b + 2);
  for (int j = 0; j < 16; ++j) {
    const int low = static_cast<int>((b[6 + j] & 15u) | (high >> j & 1u) << 4);
    const int top = static_cast<int>((b[6 + j] >> 4) | (high >> (j + 16) & 1u) << 4);
    out[j] = static_cast<float>(low - 16) * d;
    out[j + 16] = static_cast<float>(top - 16) * d;
  }
}

void q5_1(const uint8_t* b, float* out) {
  const float d = f16(b), m = f16(b + 2);
  const uint32_t high = load32(b + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((b[8 + j] & 15u) | (high >> j & 1u) << 4) * d + m;
    out[j + 16] = static_cast<float>((b[8 + j] >> 4) | (high >> (j + 16) & 1u) << 4) * d + m;
  }
}

void q8_0(const uint8_t* b, float* out) {
  const float d = f16(b);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

struct ScaleMin {
  int scale, min;  // 6 bits each
};

// Eight pairs of 6-bit numbers in the 12 bytes of Q4_K and Q5_K.
ScaleMin scale_min(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
}

// {d, dmin, scales[12], nibbles[128]}: 32 bytes hold two groups of 32, low nibbles first.
void q4_k(const uint8_t* b, float* out) {
  const float d = f16(b), dmin = f16(b + 2);
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_min(b + 4, group);
    const float d1 = d * static_cast<float>(scale), m1 = dmin * static_cast<float>(min);
    const uint8_t* q = b + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) out[group * 32 + l] = d1 * static_cast<float>(q[l] >> shift & 15) - m1;
  }
}

// {d, dmin, scales[12], high[32], nibbles[128]}: bit g of high[l] is the fifth bit of element l of group g.
void q5_k(const uint8_t* b, float* out) {
  const float d = f16(b), dmin = f16(b + 2);
  const uint8_t* high = b + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scale_min(b + 4, group);
    const float d1 = d * static_cast<float>(scale), m1 = dmin * static_cast<float>(min);
    const uint8_t* q = b + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int code = (q[l] >> shift & 15) | (high[l] >> group & 1) << 4;
      out[group * 32 + l] = d1 * static_cast<float>(code) - m1;
    }
  }
}

// {low[128], high[64], int8 scales[16], d}: per 128 elements, 64 bytes of low nibbles and 32 bytes of high bit pairs.
void q6_k(const uint8_t* b, float* out) {
  const float d = f16(b + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = b + half * 64;
    const uint8_t* high = b + 128 + half * 32;
    const uint8_t* scales = b + 192 + half * 8;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int l = 0; l < 32; ++l) {
        const int nibble = low[quarter % 2 * 32 + l] >> quarter / 2 * 4 & 15;
        const int code = (nibble | (high[l] >> quarter * 2 & 3) << 4) - 32;
        const auto scale = static_cast<int8_t>(scales[quarter * 2 + l / 16]);
        out[half * 128 + quarter * 32 + l] = d * static_cast<float>(scale) * static_cast<float>(code);
      }
    }
  }
}

void one_f16(const uint8_t* b, float* out) { *out = f16(b); }
void one_bf16(const uint8_t* b, float* out) { *out = bf16_to_f32(load16(b)); }
void one_f32(const uint8_t* b, float* out) { std::memcpy(out, b, sizeof *out); }

template <BlockReader read>
void read_all(const TensorTypeInfo& type, const std::byte* blocks, std::span<float> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(blocks);
  for (size_t i = 0; i < out.size(); i += type.block_elements, block += type.block_bytes) read(block, &out[i]);
}

}  // namespace

void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out) {
  const TensorTypeInfo& t = info(type);
  if (!t.loadable) throw unsupported("tensor type {} cannot be loaded", t.name);
  assert(out.size() % t.block_elements == 0 && blocks.size() == out.size() / t.block_elements * t.block_bytes);
  switch (type) {
    case TensorType::F32:
      return read_all<one_f32>(t, blocks.data(), out);
    case TensorType::F16:
      return read_all<one_f16>(t, blocks.data(), out);
    case TensorType::BF16:
      return read_all<one_bf16>(t, blocks.data(), out);
    case TensorType::Q4_0:
      return read_all<q4_0>(t, blocks.data(), out);
    case TensorType::Q4_1:
      return read_all<q4_1>(t, blocks.data(), out);
    case TensorType::Q5_0:
      return read_all<q5_0>(t, blocks.data(), out);
    case TensorType::Q5_1:
      return read_all<q5_1>(t, blocks.data(), out);
    case TensorType::Q8_0:
      return read_all<q8_0>(t, blocks.data(), out);
    case TensorType::Q4_K:
      return read_all<q4_k>(t, blocks.data(), out);
    case TensorType::Q5_K:
      return read_all<q5_k>(t, blocks.data(), out);
    case TensorType::Q6_K:
      return read_all<q6_k>(t, blocks.data(), out);
    default:
      assert(false && "a loadable type without a reader");
  }
}

}  // namespace quire
