// Merges the results of a query's splits, in order. The order is that of additions alone: what each split is multiplied by follows from the
// largest scores until then, which the lanes find together.
#pragma once

#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// A block merges one query: block_x() is its tile, block_y() its KV head, block_z() its number in the tile. Shared memory: a head of
// results, if the cache turns heads.
struct MergeSplits {
  static constexpr const char* kName = "merge_splits";
  static constexpr int kThreads = 128;
  static constexpr int kAtOnce = 32;  // splits that are loaded together: one for each lane

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
    for (int first = warp() * 32; first < dim; first += kThreads) {
      const int d = first + lane(), loaded = d < dim ? d : dim - 1;  // all lanes take part in the shuffles
      SplitSums sums = SplitSums::none();
      float value = 0;
      for (int split = begin; split < end; split += kAtOnce) {
        const int count = end - split < kAtOnce ? end - split : kAtOnce;
        float next_value[kAtOnce] = {};
        UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const uint64_t partial = call.partial(block_x(), kv_head, split + i - first_split, local);
          if (i < count)
            next_value[i] = call.partials[partial * static_cast<uint64_t>(padded) + static_cast<uint64_t>(loaded)];
        }
        const int own = lane() < count ? lane() : count - 1;
        const uint64_t partial = call.partial(block_x(), kv_head, split + own - first_split, local);
        const SplitSums next{call.partial_sums[2 * partial], call.partial_sums[2 * partial + 1]};
        const float top = largest_until(max_of(sums.max, next.max)), top_before = shuffle_up(top, 1);
        const Merge merge = merge_of(lane() == 0 ? sums.max : top_before, next.max, top);
        const uint32_t keeps = ballot(merge.keeps), takes = ballot(merge.takes);
        UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          if (i >= count) break;
          const Merge of_split{shuffle(merge.before, i), shuffle(merge.after, i), (keeps >> i & 1) != 0,
                               (takes >> i & 1) != 0};
          value = of_split(value, next_value[i]);
          sums.sum = of_split(sums.sum, shuffle(next.sum, i));
        }
        sums.max = shuffle(top, count - 1);
      }
      if (d >= dim) continue;
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

  // The largest number of this lane and of those before it.
  DEVICE static float largest_until(float v) {
    UNROLL
    for (int by = 1; by < 32; by *= 2) {
      const float before = shuffle_up(v, by);
      if (lane() >= by) v = max_of(v, before);
    }
    return v;
  }
};

}  // namespace quire::cuda
