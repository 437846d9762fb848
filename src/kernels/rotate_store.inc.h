// Rotation and cache writes: plain loops over single elements, the same code for every instruction set. Each kernel
// file includes it once and so compiles it for that set, after its own rotate_head() (head_rotation.h). No reductions,
// and every product-sum is an explicit FMA: gcc 12 turns x * c - y * s over neighbouring pairs into fmaddsub even under
// -ffp-contract=off, and results would differ.

#include <bit>
#include <cstdint>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/kv_codes.inc.h"
#include "kernels/lanes.h"

namespace quire::QUIRE_ISA {
namespace {

// Compilers vectorise these loops because each has one kind of pairs and the parts do not overlap.
void turn_halves(float* __restrict x, float* __restrict y, const float* __restrict cos_sin, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a = x[i], b = y[i];
    x[i] = __builtin_fmaf(a, c, -(b * s));
    y[i] = __builtin_fmaf(a, s, b * c);
  }
}
void turn_neighbours(float* __restrict x, const float* __restrict cos_sin, int pairs) {
  for (int i = 0; i < pairs; ++i) {
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = __builtin_fmaf(a, c, -(b * s));
    x[2 * i + 1] = __builtin_fmaf(a, s, b * c);
  }
}

void rotate(const RotateArgs& a) {
  const int pairs = a.rope_dim / 2;
  for (int h = 0; h < a.heads; ++h) {
    float* head = a.x + static_cast<size_t>(h) * a.head_stride;
    if (a.scale != 1.0f) {
      for (int i = 0; i < a.head_dim; ++i) head[i] *= a.scale;
    }
    float* x = head + a.offset;
    if (a.kind == RopeKind::kHalves) turn_halves(x, x + pairs, a.cos_sin, pairs);
    if (a.kind == RopeKind::kNeighbours) turn_neighbours(x, a.cos_sin, pairs);
  }
}

template <class T, class Convert>
void store_plain(const float* k, const float* v, const KvLayer& kv, int slot, T* page, Convert convert) {
  for (int i = 0; i < kv.key_dim; ++i) page[i * kPageTokens + slot] = convert(k[i]);
  for (int i = kv.key_dim; i < kv.padded_key(); ++i) page[i * kPageTokens + slot] = 0;
  T* values = page + kv.padded_key() * kPageTokens + slot * kv.padded_value();
  for (int i = 0; i < kv.value_dim; ++i) values[i] = convert(v[i]);
}

// Rounds first, which vectorises, and then scatters.
void store_bf16(const float* k, const float* v, const KvLayer& kv, int slot, uint16_t* page) {
  uint16_t rounded[kMaxHeadDim];
  for (int i = 0; i < kv.key_dim; ++i) rounded[i] = attention_bf16(k[i]);
  for (int i = kv.key_dim; i < kv.padded_key(); ++i) rounded[i] = 0;
  for (int i = 0; i < kv.padded_key(); i += 2) __builtin_memcpy(page + i / 2 * 32 + slot * 2, rounded + i, 4);
  for (int i = 0; i < kv.value_dim; ++i) rounded[i] = attention_bf16(v[i]);
  uint16_t* values = page + kv.padded_key() * kPageTokens + slot / 2 * 32 + slot % 2;
  for (int i = 0; i < kv.value_dim; ++i) values[i / 16 * 256 + i % 16 * 2] = rounded[i];
}

// The codes of one token's values, a byte each, to lines of 16 dimensions.
void put_value_bytes(const uint8_t* codes, const KvLayer& kv, int slot, std::byte* page) {
  std::byte* values = page + kv.values_offset() + slot * 16;
  for (int i = 0; i < kv.padded_value(); i += 16) __builtin_memcpy(values + i * kPageTokens, codes + i, 16);
}

void store_int8(const float* k, const float* v, const KvLayer& kv, int slot, std::byte* page) {
  alignas(16) int8_t codes[kMaxHeadDim];
  auto* keys = reinterpret_cast<int8_t*>(page);
  auto* scales = reinterpret_cast<float*>(page + kv.scales_offset());
  scales[slot] = quantize_int8(k, kv.key_dim, codes);
  for (int i = kv.key_dim; i < kv.padded_key(); ++i) codes[i] = 0;
  for (int i = 0; i < kv.padded_key(); ++i) keys[i * kPageTokens + slot] = codes[i];
  scales[kPageTokens + slot] = quantize_int8(v, kv.value_dim, codes);
  for (int i = kv.value_dim; i < kv.padded_value(); ++i) codes[i] = 0;
  put_value_bytes(reinterpret_cast<const uint8_t*>(codes), kv, slot, page);
}

void store_fp8(const float* k, const float* v, const KvLayer& kv, int slot, std::byte* page) {
  alignas(16) uint8_t codes[kMaxHeadDim];
  auto* keys = reinterpret_cast<uint8_t*>(page);
  auto* scales = reinterpret_cast<uint16_t*>(page + kv.scales_offset());
  scales[slot] = quantize_fp8(k, kv.key_dim, codes);
  for (int i = kv.key_dim; i < kv.padded_key(); ++i) codes[i] = 0;
  for (int i = 0; i < kv.padded_key(); ++i) keys[i * kPageTokens + slot] = codes[i];
  scales[kPageTokens + slot] = quantize_fp8(v, kv.value_dim, codes);
  for (int i = kv.value_dim; i < kv.padded_value(); ++i) codes[i] = 0;
  put_value_bytes(codes, kv, slot, page);
}

// A rotated copy of a head, with zeros after its last dimension.
void copy_rotated(const float* head, int dim, float* rotated) {
  __builtin_memcpy(rotated, head, sizeof(float) * static_cast<size_t>(dim));
  for (int i = dim; i < padded_head(dim); ++i) rotated[i] = 0;
  rotate_head(rotated, dim);
}

// Takes the mean of the keys before `slot` from a key.
void subtract_mean(const uint32_t* keys, const uint16_t* scales, int slot, int padded, float* key) {
  alignas(64) float mean[kMaxHeadDim];
  for (int i = 0; i < padded; ++i) mean[i] = 0;
  for (int t = 0; t < slot; ++t) {
    const float share = kMeanShares[t] * bf16_to_f32(scales[t]);
    for (int i = 0; i < padded; i += 8) {
      const uint32_t eight = keys[i / 8 * kPageTokens + t];
#pragma GCC unroll 8
      for (int n = 0; n < 8; ++n)
        mean[i + n] = __builtin_fmaf(share, kInt4Numbers[eight >> int4_shift(n) & 15], mean[i + n]);
    }
  }
  for (int i = 0; i < padded; ++i) key[i] -= mean[i];
}

void store_int4(const float* k, const float* v, const KvLayer& kv, int slot, std::byte* page) {
  alignas(64) uint8_t codes[kMaxHeadDim];
  auto* keys = reinterpret_cast<uint32_t*>(page);
  auto* values = reinterpret_cast<uint32_t*>(page + kv.values_offset());
  auto* scales = reinterpret_cast<uint16_t*>(page + kv.scales_offset());
  alignas(64) float rotated[kMaxHeadDim];
  copy_rotated(k, kv.key_dim, rotated);
  subtract_mean(keys, scales, slot, kv.padded_key(), rotated);
  scales[slot] = quantize_int4(rotated, kv.key_dim, codes);
  for (int i = kv.key_dim; i < kv.padded_key(); ++i) codes[i] = 8;
  for (int i = 0; i < kv.padded_key(); i += 8) {
    uint32_t eight = 0;
    for (int n = 0; n < 8; ++n) eight |= uint32_t{codes[i + n]} << int4_shift(n);
    keys[i / 8 * kPageTokens + slot] = eight;
  }
  copy_rotated(v, kv.value_dim, rotated);
  scales[kPageTokens + slot] = quantize_int4(rotated, kv.value_dim, codes);
  for (int i = kv.value_dim; i < kv.padded_value(); ++i) codes[i] = 8;
  const int shift = int4_shift(slot % 8);
  for (int i = 0; i < kv.padded_value(); i += 16) {
    uint32_t* line = values + i * 2 + slot / 8 * 16;
    for (int n = 0; n < 16; ++n) line[n] = (line[n] & ~(uint32_t{15} << shift)) | uint32_t{codes[i + n]} << shift;
  }
}

std::byte* page_of(const StoreKvArgs& a, int head) {
  return a.kv->data + static_cast<size_t>(a.page) * a.kv->page_stride + static_cast<size_t>(head) * a.kv->head_stride;
}

void prefetch_kv(const StoreKvArgs& a) {
  const KvLayer& kv = *a.kv;
  if (!multiplies_bf16(kv.type)) return;
  const size_t column = kv_bytes(kv.type, kPageTokens);  // bytes of one dimension of keys or values
  const size_t keys_end = kv.values_offset(), values_end = kv.scales_offset(),
               scales_end = values_end + 2 * kPageTokens * kv_scale_bytes(kv.type);
  // A head of 64: bf16 32 + 4 lines, int8 16 + 4 + 2, fp8 16 + 4 + 1, int4 8 + 4 + 1.
  for (int h = 0; h < kv.kv_heads; ++h) {
    const std::byte* page = page_of(a, h);
    for (size_t at = 0; at < keys_end; at += 64) __builtin_prefetch(page + at, 1);
    const size_t first = keys_end + static_cast<size_t>(a.slot) * column / 64 * 64;  // the line of the slot
    for (size_t at = first; at < values_end; at += 16 * column) __builtin_prefetch(page + at, 1);
    for (size_t at = values_end; at < scales_end; at += 64) __builtin_prefetch(page + at, 1);
  }
}

void store_kv(const StoreKvArgs& a) {
  const KvLayer& kv = *a.kv;
  for (int h = 0; h < kv.kv_heads; ++h) {
    const float *key = a.k + static_cast<size_t>(h) * a.k_stride, *value = a.v + static_cast<size_t>(h) * a.v_stride;
    std::byte* page = page_of(a, h);
    switch (kv.type) {
      case KvType::kF32:
        store_plain(key, value, kv, a.slot, reinterpret_cast<float*>(page), [](float x) { return x; });
        break;
      case KvType::kF16:
        store_plain(key, value, kv, a.slot, reinterpret_cast<uint16_t*>(page), f32_to_f16);
        break;
      case KvType::kBf16:
        store_bf16(key, value, kv, a.slot, reinterpret_cast<uint16_t*>(page));
        break;
      case KvType::kInt8:
        store_int8(key, value, kv, a.slot, page);
        break;
      case KvType::kInt4:
        store_int4(key, value, kv, a.slot, page);
        break;
      case KvType::kFp8:
        store_fp8(key, value, kv, a.slot, page);
        break;
    }
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
