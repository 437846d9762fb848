// Attention without matrix units: for caches of float32 and float16 numbers, which keep queries and weights in float32, and where shared
// memory is too small for the tiles of attention_tiles.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/warp_sums.h"
#include "kernels/types.h"

namespace quire::cuda {

// A block of threads takes one query: block_x() is its tile and split, block_y() its KV head, block_z() its number in the tile. Of a block of
// tokens a thread computes half of one's score, and then the results of every kThreads'th dimension.
struct AttendPlain {
  static constexpr const char* kName = "attend_plain";
  static constexpr int kThreads = 2 * kBlockTokens;
  static constexpr int kMostDims = (kMaxHeadDim + kThreads - 1) / kThreads;  // of a thread
  // Shared memory: floats of the query, scores in two halves, and what a warp knows.
  static constexpr int kScores = kMaxHeadDim, kOfWarps = kScores + kThreads, kFloats = kOfWarps + 2 * kThreads / 32;

  AttentionCall call;

  DEVICE static float f16(Global<const std::byte> from, int i) { return low_f16(cast<const uint16_t>(from)[i]); }
  DEVICE static float bf16(Global<const std::byte> from, int i) { return low_bf16(cast<const uint16_t>(from)[i]); }
  DEVICE float code(Global<const std::byte> from, int i) const {
    const uint8_t byte = cast<const uint8_t>(from)[i];
    return call.kv.type == KvType::kFp8 ? e4m3(byte) * 0x1p-8f : static_cast<float>(static_cast<int8_t>(byte));
  }
  // Numbers of a page, without scales (kernels/kernels.h has the layouts).
  DEVICE float key(Global<const std::byte> page, int token, int d) const {
    const int plain = d * kPageTokens + token;
    if (call.kv.type == KvType::kF32) return cast<const float>(page)[plain];
    if (call.kv.type == KvType::kF16) return f16(page, plain);
    if (call.kv.type == KvType::kBf16) return bf16(page, d / 2 * 32 + token * 2 + d % 2);
    return code(page, plain);
  }
  DEVICE float value(Global<const std::byte> page, int token, int d) const {
    const Global<const std::byte> values = page + call.kv.values_offset;
    const int plain = token * call.kv.padded_value() + d;
    if (call.kv.type == KvType::kF32) return cast<const float>(values)[plain];
    if (call.kv.type == KvType::kF16) return f16(values, plain);
    if (call.kv.type == KvType::kBf16) return bf16(values, d / 16 * 256 + token / 2 * 32 + d % 16 * 2 + token % 2);
    return code(values, d / 16 * 16 * kPageTokens + token * 16 + d % 16);
  }
  DEVICE float scale_of(Global<const std::byte> page, int index) const {
    const Global<const std::byte> scales = page + call.kv.scales_offset;
    if (call.kv.type == KvType::kInt8) return cast<const float>(scales)[index];
    return call.kv.type == KvType::kFp8 ? low_bf16(cast<const uint16_t>(scales)[index]) : 1.0f;
  }

  DEVICE static float largest_of_warp(float x) {
    for (int mask = 16; mask > 0; mask /= 2) x = max_of(x, shuffle_xor(x, mask));
    return x;
  }

  DEVICE void operator()() const {
    const int tile_number = block_x() / call.splits, kv_head = block_y(), local = block_z();
    const QueryTile tile = call.tiles[tile_number];
    if (local >= tile.queries) return;
    const int first_split = call.seen(tile, tile.first).begin / kSplitTokens;  // of the tile
    Seen seen = call.seen(tile, tile.first + local);
    if (call.partials != nullptr) {
      const int begin = (first_split + block_x() % call.splits) * kSplitTokens, end = begin + kSplitTokens;
      seen = {begin > seen.begin ? begin : seen.begin, end < seen.end ? end : seen.end};
      if (seen.begin >= seen.end) return;
    }
    const int head = call.head(kv_head, tile.first + local),
              position = tile.position + (tile.first + local) / call.group;
    const float slope = call.slopes != nullptr ? call.slopes[head] : 0.0f;
    const Shared<float> q = shared<float>(0), scores = q + kScores, of_warps = q + kOfWarps;
    const Global<const float> from = call.query(tile, kv_head, tile.first + local);
    const bool rounds = multiplies_bf16();
    for (int d = thread(); d < call.kv.key_dim; d += kThreads)
      q[d] = rounds ? low_bf16(pack_bf16(from[d], 0)) : from[d];
    const Global<const int32_t> table = call.tables + tile.table;
    const auto page_of = [&](int token) {
      return Global<const std::byte>(call.kv.head(table[token / kPageTokens], kv_head));
    };

    SplitSums total = SplitSums::none(), split = SplitSums::none();
    float acc[kMostDims] = {}, before[kMostDims] = {};
    const int block_end = (seen.end - 1) / kBlockTokens + 1;
    for (int block = seen.begin / kBlockTokens; block < block_end; ++block) {
      const int mine = thread() % kBlockTokens, token = block * kBlockTokens + mine;
      const bool sees = token >= seen.begin && token < seen.end;
      sync_block();  // the query is there, and the weights before have been read
      float product = 0;
      if (sees) {
        const Global<const std::byte> page = page_of(token);
        const int dim = call.kv.key_dim, middle = dim / 2, second = thread() / kBlockTokens;
        for (int d = second == 0 ? 0 : middle; d < (second == 0 ? middle : dim); ++d)
          product = fma_of(q[d], key(page, token % kPageTokens, d), product);
      }
      scores[thread()] = product;
      sync_block();
      float score = minus_infinity(), value_scale = 0;
      if (sees && thread() < kBlockTokens) {
        const Global<const std::byte> page = page_of(token);
        score = (scores[mine] + scores[kBlockTokens + mine]) * scale_of(page, token % kPageTokens);
        if (!call.is_plain()) score = call.score_of(score, slope, token - position);
        value_scale = scale_of(page, kPageTokens + token % kPageTokens);
      }
      const float most = largest_of_warp(score);
      if (lane() == 0) of_warps[warp()] = most;
      sync_block();
      const float now = max_of(split.max, max_of(of_warps[0], of_warps[1]) * call.to_powers),
                  correction = now == minus_infinity() ? 1.0f : exp2_of(split.max - now);
      float weight = exp2_of(fma_of(score, call.to_powers, now == minus_infinity() ? 0.0f : -now));
      if (call.kv.type == KvType::kBf16) weight = low_bf16(pack_bf16(weight, 0));
      const float sum = sum_of_warp(weight);
      if (lane() == 0) of_warps[kThreads / 32 + warp()] = sum;
      if (thread() < kBlockTokens)
        scores[mine] = weight == 0 ? 0.0f : rounds ? low_bf16(pack_bf16(weight * value_scale, 0)) : weight;
      sync_block();
      split = {now, split.sum * correction + (of_warps[kThreads / 32] + of_warps[kThreads / 32 + 1])};
      add_values(block, seen, page_of, scores, correction, acc);

      const bool last = block + 1 == block_end;
      if (!last && (block + 1) % (kSplitTokens / kBlockTokens) != 0) continue;
      if (call.partials != nullptr) {
        write_partial(call.partial(tile_number, kv_head, block_x() % call.splits, local), split, acc);
        return;
      }
      const Merge merge = total.absorb(split);
      UNROLL
      for (int n = 0; n < kMostDims; ++n) {
        before[n] = merge(before[n], acc[n]);
        acc[n] = 0;
      }
      split = SplitSums::none();
    }
    const float factor = total.finish(call, head);
    const Global<float> to = call.result(tile, kv_head, tile.first + local);
    UNROLL
    for (int n = 0; n < kMostDims; ++n) {
      const int d = thread() + n * kThreads;
      if (d < call.kv.value_dim) to[d] = before[n] * factor;
    }
  }

  DEVICE bool multiplies_bf16() const { return call.kv.type != KvType::kF32 && call.kv.type != KvType::kF16; }

  template <class PageOf>
  DEVICE void add_values(int block, const Seen& seen, PageOf page_of, Shared<float> weights, float correction,
                         float (&acc)[kMostDims]) const {
    UNROLL
    for (int n = 0; n < kMostDims; ++n) acc[n] *= correction;
    const int first = block * kBlockTokens, begin = first > seen.begin ? first : seen.begin,
              end = first + kBlockTokens < seen.end ? first + kBlockTokens : seen.end;
    for (int token = begin; token < end; ++token) {
      const float weight = weights[token - first];
      if (weight == 0) continue;
      const Global<const std::byte> page = page_of(token);
      UNROLL
      for (int n = 0; n < kMostDims; ++n) {
        const int d = thread() + n * kThreads;
        if (d < call.kv.value_dim) acc[n] = fma_of(weight, value(page, token % kPageTokens, d), acc[n]);
      }
    }
  }

  DEVICE void write_partial(uint64_t partial, const SplitSums& split, const float (&acc)[kMostDims]) const {
    const uint64_t padded = static_cast<uint64_t>(call.kv.padded_value());
    UNROLL
    for (int n = 0; n < kMostDims; ++n) {
      const int d = thread() + n * kThreads;
      if (d < call.kv.value_dim) call.partials[partial * padded + static_cast<uint64_t>(d)] = acc[n];
    }
    if (thread() != 0) return;
    call.partial_sums[2 * partial] = split.max;
    call.partial_sums[2 * partial + 1] = split.sum;
  }
};

}  // namespace quire::cuda
