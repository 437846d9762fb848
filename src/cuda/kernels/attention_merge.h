// Merges the results of a query's splits, in order.
#pragma once

#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// A block merges one query: block_x() is its tile, block_y() its KV head, block_z() its number in the tile. Shared memory: a head of
// results, if the cache turns heads.
struct MergeSplits {
  static constexpr const char* kName = "merge_splits";
  static constexpr int kThreads = 128;
  static constexpr int kAtOnce = 16;  // splits that are loaded together

  AttentionCall call;

  DEVICE void operator()() const {
    const QueryTile tile = call.tiles[block_x()];
    const int local = block_z(), kv_head = block_y();
    if (local >= tile.queries) return;
    const int first_split = call.seen(tile, tile.first).begin / kSplitTokens;  // of the tile
    const Seen seen = call.seen(tile, tile.first + local);
    const int begin = seen.begin / kSplitTokens, end = (seen.end - 1) / kSplitTokens + 1;
    const int dim = call.kv.value_dim, padded = call.kv.padded_value(), head = call.head(kv_head, tile.first + local);
    const Global<float> to = call.result(tile, kv_head, tile.first + local);
    const bool turns = call.kv.type == KvType::kInt4;
    const Shared<float> turned = shared<float>(0);
    for (int d = thread(); d < dim; d += kThreads) {
      SplitSums sums = SplitSums::none();
      float value = 0;
      for (int split = begin; split < end; split += kAtOnce) {
        SplitSums next[kAtOnce];
        float next_value[kAtOnce];
        UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const int s = split + i < end ? split + i : end - 1;
          const uint64_t partial = call.partial(block_x(), kv_head, s - first_split, local);
          next[i] = {call.partial_sums[2 * partial], call.partial_sums[2 * partial + 1]};
          next_value[i] = call.partials[partial * static_cast<uint64_t>(padded) + static_cast<uint64_t>(d)];
        }
        UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (split + i < end) value = sums.absorb(next[i])(value, next_value[i]);
        }
      }
      const float result = value * sums.finish(call, head);
      if (turns) {
        turned[d] = result;
      } else {
        to[d] = result;
      }
    }
    if (!turns) return;
    sync_block();
    if (warp() != 0) return;
    turn_head_back(call.turn_value, turned);
    for (int d = lane(); d < dim; d += 32) to[d] = turned[d];
  }
};

}  // namespace quire::cuda
