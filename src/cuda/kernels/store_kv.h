// One head's key or value of one token into its page: the bytes of store_kv() of the CPU (kernels/kernels.h), written by one warp. The
// vectors are in shared memory, which the whole warp has written; x [padded] for int4, else x [dim]. x may be overwritten.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/int4_codes.h"
#include "cuda/kernels/kv_pages.h"
#include "cuda/kernels/turn_heads.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// The bits of the largest magnitude of x [count]; NaN is the largest.
DEVICE uint32_t largest_magnitude(Shared<float> x, int count) {
  int bits = 0;
  for (int i = lane(); i < count; i += 32) {
    const int magnitude = static_cast<int>(float_bits(x[i]) & 0x7fffffff);
    bits = magnitude > bits ? magnitude : bits;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const int other = shuffle_xor(bits, mask);
    bits = other > bits ? other : bits;
  }
  return static_cast<uint32_t>(bits);
}
inline constexpr uint32_t kInfinityBits = 0x7f800000;
inline constexpr uint16_t kNotANumber = 0x7fc0;  // a bf16 scale

// attention_bf16() of two numbers.
DEVICE uint32_t pack_rounded(float low, float high) {
  constexpr float kSmallest = 0x1p-56f;
  return pack_bf16(low < kSmallest && low > -kSmallest ? 0.0f : low,
                   high < kSmallest && high > -kSmallest ? 0.0f : high);
}

// The vector of a page that a warp stores: its key or its value at `slot`.
struct KvSlot {
  Global<std::byte> page;  // of the head
  int slot;
  bool is_key;
};

// ---- Without codes

template <class T, class Convert>
DEVICE void store_plain(const KvPages& kv, const KvSlot& to, Shared<float> x, Convert convert) {
  if (to.is_key) {
    const Global<T> keys = cast<T>(to.page);
    for (int i = lane(); i < kv.padded_key(); i += 32)
      keys[i * kPageTokens + to.slot] = i < kv.key_dim ? convert(x[i]) : T{0};
  } else {
    const Global<T> values = cast<T>(to.page + kv.values_offset) + to.slot * kv.padded_value();
    for (int i = lane(); i < kv.value_dim; i += 32) values[i] = convert(x[i]);
  }
}

DEVICE void store_bf16(const KvPages& kv, const KvSlot& to, Shared<float> x) {
  if (to.is_key) {
    const Global<uint32_t> keys = cast<uint32_t>(to.page);
    for (int pair = lane(); pair < kv.padded_key() / 2; pair += 32) {
      const int i = 2 * pair;
      keys[pair * kPageTokens + to.slot] =
          pack_rounded(i < kv.key_dim ? x[i] : 0.0f, i + 1 < kv.key_dim ? x[i + 1] : 0.0f);
    }
  } else {
    const Global<uint16_t> values = cast<uint16_t>(to.page + kv.values_offset) + (to.slot / 2 * 32 + to.slot % 2);
    for (int i = lane(); i < kv.value_dim; i += 32)
      values[i / 16 * 256 + i % 16 * 2] = static_cast<uint16_t>(pack_rounded(x[i], 0));
  }
}

// ---- Codes of 8 bits

// The int8 code of x; inverse: 127 / largest, or 0 if the scale is 0 or not finite.
DEVICE uint8_t int8_code(float x, float inverse) {
  if (inverse != 0)
    return static_cast<uint8_t>(float_bits(fma_of(x, inverse, 0x1.8p23f)));  // the sum's last bit is worth 1
  const uint32_t bits = float_bits(x);
  return (bits & 0x7fffffff) != kInfinityBits ? uint8_t{0} : bits >> 31 ? uint8_t{129} : uint8_t{127};
}
// The E4M3 code of x * inverse: quantize_fp8() of kernels/kv_codes.inc.h.
DEVICE uint8_t fp8_code(float x, float inverse) {
  const uint32_t bits = float_bits(x * inverse), raw = bits & 0x7fffffff;
  const uint32_t normal = ((raw + 0x7ffff + (raw >> 20 & 1)) >> 20) - (120 << 3),
                 subnormal = float_bits(bits_float(raw) + 0x1p14f) - float_bits(0x1p14f);
  return static_cast<uint8_t>((raw >= float_bits(0x1p-6f) ? normal : subnormal) | bits >> 31 << 7);
}

template <class Code>
DEVICE void store_code_bytes(const KvPages& kv, const KvSlot& to, Shared<float> x, Code code) {
  const Global<uint8_t> bytes = cast<uint8_t>(to.page);
  if (to.is_key) {
    for (int i = lane(); i < kv.padded_key(); i += 32)
      bytes[i * kPageTokens + to.slot] = i < kv.key_dim ? code(x[i]) : uint8_t{0};
  } else {
    const Global<uint8_t> values = bytes + (kv.values_offset + to.slot * 16);
    for (int i = lane(); i < kv.padded_value(); i += 32)
      values[i / 16 * 16 * kPageTokens + i % 16] = i < kv.value_dim ? code(x[i]) : uint8_t{0};
  }
}

DEVICE void store_int8(const KvPages& kv, const KvSlot& to, Shared<float> x) {
  const uint32_t bits = largest_magnitude(x, to.is_key ? kv.key_dim : kv.value_dim);
  const float largest = bits_float(bits);
  const bool usual = largest >= 0x1p-56f && bits < kInfinityBits;
  const float inverse = usual ? 127.0f / largest : 0.0f;
  store_code_bytes(kv, to, x, [inverse](float number) { return int8_code(number, inverse); });
  if (lane() == 0) {
    const float scale = usual ? largest / 127.0f : bits >= kInfinityBits ? largest : 0.0f;
    cast<float>(to.page + kv.scales_offset)[(to.is_key ? 0 : kPageTokens) + to.slot] = scale;
  }
}

DEVICE void store_fp8(const KvPages& kv, const KvSlot& to, Shared<float> x) {
  const uint32_t bits = largest_magnitude(x, to.is_key ? kv.key_dim : kv.value_dim);
  const float largest = bits_float(bits);
  const bool usual = largest >= kSmallestFp8 && bits < kInfinityBits;
  const uint32_t scale = usual ? pack_bf16(largest / 1.75f, 0) : bits >= kInfinityBits ? kNotANumber : 0u;
  const float inverse = usual ? 256.0f / low_bf16(scale) : 0.0f;
  store_code_bytes(kv, to, x, [=](float number) { return usual ? fp8_code(number, inverse) : uint8_t{0}; });
  if (lane() == 0)
    cast<uint16_t>(to.page + kv.scales_offset)[(to.is_key ? 0 : kPageTokens) + to.slot] = static_cast<uint16_t>(scale);
}

// ---- Codes of 4 bits

// Takes the mean of the keys before `slot` from a key.
DEVICE void subtract_mean(const KvPages& kv, const KvSlot& to, Shared<float> key) {
  const Global<uint32_t> keys = cast<uint32_t>(to.page);
  const Global<uint16_t> scales = cast<uint16_t>(to.page + kv.scales_offset);
  for (int eights = lane(); eights < kv.padded_key() / 8; eights += 32) {
    float mean[8] = {};
    for (int t = 0; t < to.slot; ++t) {
      const float share = mean_share(t) * low_bf16(scales[t]);
      const uint32_t eight = keys[eights * kPageTokens + t];
      UNROLL
      for (int n = 0; n < 8; ++n) mean[n] = fma_of(share, number_of_int4(eight >> shift_of_int4(n) & 15), mean[n]);
    }
    UNROLL
    for (int n = 0; n < 8; ++n) key[8 * eights + n] = key[8 * eights + n] - mean[n];
  }
  sync_warp();
}

// 1.08, 1.05 .. 0.72: kInt4Shares.
DEVICE float int4_share(int i) {
  return i == 0    ? 1.08f
         : i == 1  ? 1.05f
         : i == 2  ? 1.02f
         : i == 3  ? 0.99f
         : i == 4  ? 0.96f
         : i == 5  ? 0.93f
         : i == 6  ? 0.9f
         : i == 7  ? 0.87f
         : i == 8  ? 0.84f
         : i == 9  ? 0.81f
         : i == 10 ? 0.78f
         : i == 11 ? 0.75f
                   : 0.72f;
}
inline constexpr int kShares = static_cast<int>(sizeof kInt4Shares / sizeof *kInt4Shares);
static_assert(kShares == 13);

// The scale of the int4 codes of x [count]. Each half of the warp computes the errors of every other share, in 16 chains.
DEVICE uint32_t int4_scale(Shared<float> x, int count, float largest) {
  uint32_t best = 0;
  float least = 0;
  for (int pair = 0; pair < kShares; pair += 2) {
    const int mine = pair + lane() / 16;
    const uint32_t scale = pack_bf16(int4_share(mine) * (largest / 127.0f), 0);
    const float by = low_bf16(scale), inverse = 1.0f / by;
    float chain = 0;
    for (int i = lane() % 16; i < count; i += 16) {
      const float error = fma_of(-by, number_of_int4(nearest_int4(x[i] * inverse)), x[i]);
      chain = fma_of(error, error, chain);
    }
    for (int mask = 8; mask > 0; mask /= 2) chain = chain + shuffle_xor(chain, mask);
    for (int half = 0; half < 2 && pair + half < kShares; ++half) {
      const float error = shuffle(chain, 16 * half);
      const uint32_t of_half = shuffle(scale, 16 * half);
      if (best != 0 && !(error < least)) continue;
      best = of_half;
      least = error;
    }
  }
  return best;
}

// x: rotated; a key less the mean. codes: [padded] bytes for the warp's use.
DEVICE void store_int4(const KvPages& kv, const KvSlot& to, Shared<float> x, Shared<uint8_t> codes) {
  const int dim = to.is_key ? kv.key_dim : kv.value_dim, padded = to.is_key ? kv.padded_key() : kv.padded_value();
  const uint32_t bits = largest_magnitude(x, dim);
  const float largest = bits_float(bits);
  const bool usual = largest >= kSmallestInt4 && bits < kInfinityBits;
  const uint32_t scale = usual ? int4_scale(x, dim, largest) : bits >= kInfinityBits ? kNotANumber : 0u;
  const float inverse = usual ? 1.0f / low_bf16(scale) : 0.0f;
  for (int i = lane(); i < padded; i += 32)
    codes[i] = static_cast<uint8_t>(usual && i < dim ? nearest_int4(x[i] * inverse) : 8u);
  sync_warp();
  if (to.is_key) {
    const Global<uint32_t> keys = cast<uint32_t>(to.page);
    for (int eights = lane(); eights < padded / 8; eights += 32) {
      uint32_t eight = 0;
      for (int n = 0; n < 8; ++n) eight |= static_cast<uint32_t>(codes[8 * eights + n]) << shift_of_int4(n);
      keys[eights * kPageTokens + to.slot] = eight;
    }
  } else {
    const Global<uint32_t> values = cast<uint32_t>(to.page + kv.values_offset) + to.slot / 8 * 16;
    const int shift = shift_of_int4(to.slot % 8);
    for (int i = lane(); i < padded; i += 32) {
      const int at = i / 16 * 32 + i % 16;
      values[at] = (values[at] & ~(15u << shift)) | static_cast<uint32_t>(codes[i]) << shift;
    }
  }
  if (lane() == 0)
    cast<uint16_t>(to.page + kv.scales_offset)[(to.is_key ? 0 : kPageTokens) + to.slot] = static_cast<uint16_t>(scale);
  sync_warp();  // the next token's key reads these codes, and its codes overwrite `codes`
}

// The same for a cache of any type. turn: of int4 caches.
DEVICE void store_vector(const KvPages& kv, const KvSlot& to, const HeadTurn& turn, Shared<float> x,
                         Shared<uint8_t> codes) {
  switch (kv.type) {
    case KvType::kF32:
      store_plain<float>(kv, to, x, [](float number) { return number; });
      break;
    case KvType::kF16:
      store_plain<uint16_t>(kv, to, x, [](float number) { return static_cast<uint16_t>(pack_f16(number, 0)); });
      break;
    case KvType::kBf16:
      store_bf16(kv, to, x);
      break;
    case KvType::kInt8:
      store_int8(kv, to, x);
      break;
    case KvType::kFp8:
      store_fp8(kv, to, x);
      break;
    case KvType::kInt4:
      turn_head(turn, x);
      if (to.is_key) subtract_mean(kv, to, x);
      store_int4(kv, to, x, codes);
      break;
  }
}

}  // namespace quire::cuda
