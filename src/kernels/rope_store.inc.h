// Rotation and cache writes: plain loops over single elements, the same text for every instruction set. Each kernel
// file includes it once, so that it is compiled for that set. No reductions, and every product-sum is an explicit FMA:
// gcc 12 turns x * c - y * s over neighbouring pairs into fmaddsub even under -ffp-contract=off, so leaving the choice
// to the compiler would give two results.

#include <cstdint>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"

namespace quire {
namespace {

void turn(const float* in, float* out, int dim, const float* cos_sin, int rope_dim, RopeKind kind) {
  const int pairs = kind == RopeKind::kNone ? 0 : rope_dim / 2;
  for (int i = 0; i < pairs; ++i) {
    const int a = kind == RopeKind::kHalves ? i : 2 * i;
    const int b = kind == RopeKind::kHalves ? i + pairs : 2 * i + 1;
    const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x = in[a], y = in[b];
    out[a] = __builtin_fmaf(x, c, -(y * s));
    out[b] = __builtin_fmaf(x, s, y * c);
  }
  for (int i = 2 * pairs; i < dim; ++i) out[i] = in[i];
}

template <class T, class Convert>
void store_plain(const float* k, const float* v, int dim, int padded, int slot, T* page, Convert convert) {
  for (int i = 0; i < dim; ++i) page[i * kPageTokens + slot] = convert(k[i]);
  T* values = page + padded * kPageTokens + slot * padded;
  for (int i = 0; i < dim; ++i) values[i] = convert(v[i]);
}

void store_bf16(const float* k, const float* v, int dim, int padded, int slot, uint16_t* page) {
  for (int i = 0; i < dim; ++i) page[i / 2 * 32 + slot * 2 + i % 2] = attention_bf16(k[i]);
  uint16_t* values = page + padded * kPageTokens;
  for (int i = 0; i < dim; ++i) values[i / 16 * 256 + slot / 2 * 32 + i % 16 * 2 + slot % 2] = attention_bf16(v[i]);
}

void rope_store(const RopeStoreArgs& a) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim, padded = kv.padded_dim();
  for (int h = 0; h < a.heads; ++h) turn(a.q + h * dim, a.q + h * dim, dim, a.cos_sin, a.rope_dim, a.kind);
  for (int h = 0; h < kv.kv_heads; ++h) {
    float key[kMaxHeadDim];
    turn(a.k + h * dim, key, dim, a.cos_sin, a.rope_dim, a.kind);
    const float* value = a.v + h * dim;
    std::byte* page = kv.data + static_cast<size_t>(a.page) * kv.page_stride + static_cast<size_t>(h) * kv.head_stride;
    switch (kv.type) {
      case KvType::kF32:
        store_plain(key, value, dim, padded, a.slot, reinterpret_cast<float*>(page), [](float x) { return x; });
        break;
      case KvType::kF16:
        store_plain(key, value, dim, padded, a.slot, reinterpret_cast<uint16_t*>(page), f32_to_f16);
        break;
      case KvType::kBf16:
        store_bf16(key, value, dim, padded, a.slot, reinterpret_cast<uint16_t*>(page));
        break;
    }
  }
}

}  // namespace
}  // namespace quire
