// A sequence in a KV cache with queries for all of its tokens, for tests of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace quire::testing {

inline constexpr KvType kKvTypes[] = {KvType::kF32,  KvType::kBf16, KvType::kF16,
                                      KvType::kInt8, KvType::kInt4, KvType::kFp8};
inline constexpr KvType kCodedTypes[] = {KvType::kInt8, KvType::kInt4, KvType::kFp8};

struct Case {
  KvType type;
  int heads, kv_heads, dim, tokens, window;
  int value_dim = 0;  // 0: dim
  float soft_cap = 0;
  bool causal = true, sloped = false, sinking = false;

  int values() const { return value_dim > 0 ? value_dim : dim; }
};

// A sequence of `tokens` tokens in scattered pages, with queries for all of them.
struct Sequence {
  Case c;
  std::vector<float> q, k, v, slopes, sinks;
  std::vector<std::byte> memory;
  std::vector<int32_t> pages;
  KvLayer kv;

  Sequence(Case shape, const KernelSet& kernels, unsigned page_seed) : c(shape) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, int count) {
      x.resize(static_cast<size_t>(count));
      for (float& value : x) value = normal(random);
    };
    fill(q, c.tokens * c.heads * c.dim), fill(k, c.tokens * c.kv_heads * c.dim);
    fill(v, c.tokens * c.kv_heads * c.values()), fill(sinks, c.heads);
    for (int h = 0; h < c.heads; ++h) slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / 11.0f));
    const int count = (c.tokens + kPageTokens - 1) / kPageTokens;
    pages.resize(static_cast<size_t>(count) + 5);
    std::iota(pages.begin(), pages.end(), 0);
    std::mt19937 placement(page_seed);
    std::shuffle(pages.begin(), pages.end(), placement);
    const size_t head_stride = kv_head_bytes(c.type, c.dim, c.values());
    memory.assign(pages.size() * head_stride * static_cast<size_t>(c.kv_heads), std::byte{0xff});  // NaN
    kv = {memory.data(), head_stride * static_cast<size_t>(c.kv_heads), head_stride, c.type, c.kv_heads, c.dim,
          c.values()};
    const std::vector<float> poison(static_cast<size_t>(c.kv_heads * std::max(c.dim, c.values())),
                                    std::numeric_limits<float>::quiet_NaN());
    for (int t = 0; t < count * kPageTokens; ++t) {  // after the last token: remains of another sequence
      if (t < c.tokens) {
        put(kernels, t, *this);
      } else {
        store(kernels, t, poison.data(), poison.data());
      }
    }
  }

  void store(const KernelSet& kernels, int t, const float* key, const float* value) {
    kernels.store_kv({.k = key,
                      .v = value,
                      .k_stride = static_cast<size_t>(c.dim),
                      .v_stride = static_cast<size_t>(c.values()),
                      .kv = &kv,
                      .page = pages[static_cast<size_t>(t / kPageTokens)],
                      .slot = t % kPageTokens});
  }
  // Stores token t of `from` again.
  void put(const KernelSet& kernels, int t, const Sequence& from) {
    store(kernels, t, &from.k[static_cast<size_t>(t * c.kv_heads * c.dim)],
          &from.v[static_cast<size_t>(t * c.kv_heads * c.values())]);
  }

  AttentionArgs args(std::vector<float>& out) {
    const size_t stride = static_cast<size_t>(c.heads * c.values());
    out.assign(static_cast<size_t>(c.tokens) * stride, -1.0f);
    return {.q = q.data(),
            .q_stride = static_cast<size_t>(c.heads * c.dim),
            .out = out.data(),
            .out_stride = stride,
            .kv = &kv,
            .heads = c.heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(c.dim)),
            .window = c.window,
            .causal = c.causal,
            .soft_cap = c.soft_cap,
            .slopes = c.sloped ? slopes.data() : nullptr,
            .sinks = c.sinking ? sinks.data() : nullptr};
  }
  int splits(int position) const { return position / kAttentionSplit + 1; }
  // Rows lie at the positions of their numbers.
  AttentionTile tile(int row, int rows, int head, int heads, int split_begin, int split_end) const {
    return {.pages = pages.data(),
            .row = row,
            .rows = rows,
            .position = row,
            .end = c.tokens,
            .head = head,
            .heads = heads,
            .split_begin = split_begin,
            .split_end = split_end};
  }

  // All rows, `rows` per tile; splits are computed in one tile, or apart and merged.
  std::vector<float> run(const KernelSet& kernels, int rows, bool merged) {
    std::vector<float> out;
    const AttentionArgs a = args(out);
    const int group = c.heads / c.kv_heads;
    const size_t part = static_cast<size_t>(rows * group * (kv.padded_value() + 2));
    for (int row = 0; row < c.tokens; row += rows) {
      const int count = std::min(rows, c.tokens - row), all = splits(c.causal ? row + count - 1 : c.tokens - 1);
      for (int h = 0; h < c.kv_heads; ++h) {
        if (!merged) {
          kernels.attention(a, tile(row, count, h * group, group, 0, all));
          continue;
        }
        std::vector<float> partials(part * static_cast<size_t>(all));
        for (int s = 0; s < all; ++s) {
          AttentionTile split = tile(row, count, h * group, group, s, s + 1);
          split.partial = &partials[part * static_cast<size_t>(s)];
          kernels.attention(a, split);
        }
        kernels.merge(a, {.row = row,
                          .rows = count,
                          .head = h * group,
                          .heads = group,
                          .partials = partials.data(),
                          .split_stride = part,
                          .splits = all});
      }
    }
    return out;
  }
};

}  // namespace quire::testing
