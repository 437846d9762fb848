// Rotation and cache writes: plain loops over single elements, the same code for every instruction set. Each kernel
// file includes it once and so compiles it for that set. No reductions, and every product-sum is an explicit FMA: gcc
// 12 turns x * c - y * s over neighbouring pairs into fmaddsub even under -ffp-contract=off, and results would differ.

#include <cstdint>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/lanes.h"

namespace quire::QUIRE_ISA {
namespace {

// Compilers vectorise these loops because `in` and `out` do not overlap and each loop has one kind of pairs.
void turn(const float* __restrict in, float* __restrict out, int dim, const float* cos_sin, int rope_dim,
          RopeKind kind) {
  const int pairs = kind == RopeKind::kNone ? 0 : rope_dim / 2;
  if (kind == RopeKind::kHalves) {
    for (int i = 0; i < pairs; ++i) {
      const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x = in[i], y = in[i + pairs];
      out[i] = __builtin_fmaf(x, c, -(y * s));
      out[i + pairs] = __builtin_fmaf(x, s, y * c);
    }
  } else {
    for (int i = 0; i < pairs; ++i) {
      const float c = cos_sin[2 * i], s = cos_sin[2 * i + 1], x = in[2 * i], y = in[2 * i + 1];
      out[2 * i] = __builtin_fmaf(x, c, -(y * s));
      out[2 * i + 1] = __builtin_fmaf(x, s, y * c);
    }
  }
  for (int i = 2 * pairs; i < dim; ++i) out[i] = in[i];
}

template <class T, class Convert>
void store_plain(const float* k, const float* v, int dim, int padded, int slot, T* page, Convert convert) {
  for (int i = 0; i < dim; ++i) page[i * kPageTokens + slot] = convert(k[i]);
  T* values = page + padded * kPageTokens + slot * padded;
  for (int i = 0; i < dim; ++i) values[i] = convert(v[i]);
}

// Rounds first, which vectorises, and then scatters.
void store_bf16(const float* k, const float* v, int dim, int padded, int slot, uint16_t* page) {
  uint16_t rounded[kMaxHeadDim + 1];
  for (int i = 0; i < dim; ++i) rounded[i] = attention_bf16(k[i]);
  rounded[dim] = 0;
  for (int i = 0; i < dim; i += 2) __builtin_memcpy(page + i / 2 * 32 + slot * 2, rounded + i, 4);
  for (int i = 0; i < dim; ++i) rounded[i] = attention_bf16(v[i]);
  uint16_t* values = page + padded * kPageTokens + slot / 2 * 32 + slot % 2;
  for (int i = 0; i < dim; ++i) values[i / 16 * 256 + i % 16 * 2] = rounded[i];
}

// Prefetches the lines that store_bf16() will write (36 for a head of 64): in decoding, they were last touched a step
// ago and are no longer in a cache.
void prefetch_bf16(const std::byte* page, int padded, int slot) {
  for (int i = 0; i < padded; i += 2) __builtin_prefetch(page + i * 32, 1);
  for (int i = 0; i < padded; i += 16) __builtin_prefetch(page + padded * 32 + slot / 2 * 64 + i * 32, 1);
}

void rope_store(const RopeStoreArgs& a) {
  const KvLayer& kv = *a.kv;
  const int dim = kv.head_dim, padded = kv.padded_dim();
  const auto page_of = [&](int h) {
    return kv.data + static_cast<size_t>(a.page) * kv.page_stride + static_cast<size_t>(h) * kv.head_stride;
  };
  for (int h = 0; h < kv.kv_heads && kv.type == KvType::kBf16; ++h) prefetch_bf16(page_of(h), padded, a.slot);
  float turned[kMaxHeadDim];
  for (int h = 0; h < a.heads; ++h) {
    turn(a.q + h * dim, turned, dim, a.cos_sin, a.rope_dim, a.kind);
    __builtin_memcpy(a.q + h * dim, turned, sizeof(float) * static_cast<size_t>(dim));
  }
  for (int h = 0; h < kv.kv_heads; ++h) {
    float* key = turned;
    turn(a.k + h * dim, key, dim, a.cos_sin, a.rope_dim, a.kind);
    const float* value = a.v + h * dim;
    std::byte* page = page_of(h);
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
}  // namespace quire::QUIRE_ISA
