// Attention by products of warpgroups (sm_90a), for many queries over a bf16 cache with heads of at most 128 numbers.
//
// A block of threads takes 128 queries of one KV head: two warpgroups of 64, which compute, and one that brings keys and values to shared
// memory. It loads a block of 64 tokens into registers while the block before is computed, and stores it in the order that products read:
//
//   keys     64 rows of 64 dimensions, or two such tiles   row 8 (4 h + j) + n: token 32 h + 4 n + j of the block
//   values   rows of 64 tokens                             row 8 (4 m + j) + n: dimension 32 m + 4 n + j
//            16 bytes 4 h + q of a row: the pairs of tokens 32 h + 8 i + 2 q and the next one, for i = 0 .. 3
//
// So scores and results are where attention_lanes.h expects them, and all sums are those of attention_tiles.h, number by number: a product of
// a warpgroup has the bits of multiply_bf16().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/attention_lanes.h"
#include "cuda/kernels/unroll.h"
#include "kernels/types.h"

namespace quire::cuda {

// KeySteps: 4 or 8 steps of 16 dimensions of a key. Groups: 2 or 4 groups of 32 dimensions of a value. Smaller heads are filled with zeros.
template <int KeySteps, int Groups>
struct AttendWide {
  using Lanes = AttentionLanes<8, 1, Groups, false>;
  static constexpr const char* kName = "attend_wide";
  // A warpgroup brings blocks. (With 9 to 12 warps a thread has at most 168 registers, for there are three on each scheduler.)
  static constexpr int kComputing = Lanes::kThreads, kBringing = 128, kThreads = kComputing + kBringing;
  static constexpr int kBringingWarps = kBringing / 32;
  static constexpr int kStages = 2;
  static constexpr int kKeyTile = kBlockTokens * 128;  // bytes, of 64 dimensions
  static constexpr int kKeyBytes = KeySteps / 4 * kKeyTile, kValueBytes = Groups * 32 * 128;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes;
  static constexpr int kTotalBytes = Groups * 16 * kComputing * 4;
  // Words of queries, which registers have no room for while weights are computed: [warps][KeySteps][32 lanes][4].
  static constexpr int kQueriesAt = kTotalBytes + kStages * kStageBytes;
  static constexpr int kSharedBytes = kQueriesAt + kComputing / 32 * KeySteps * 512;
  // Of a thread that brings a block: pages and tiles of keys, and blocks of 16 dimensions of values.
  static constexpr int kKeyPages = kBlockPages / kBringingWarps, kKeyTiles = KeySteps / 4;
  static constexpr int kValueTasks = 2 * Groups / kBringingWarps;

  Lanes lanes;  // at.totals: 0; other places are not used

  DEVICE static Shared<std::byte> stage(int block) {
    return shared<std::byte>(static_cast<size_t>(kTotalBytes + block % kStages * kStageBytes));
  }
  // The block is in shared memory, and the block before it has been computed: a meeting of a warpgroup with the one that brings blocks.
  DEVICE static void meet(int group) {
    if (group == 0) {
      sync_part(1, 128 + kBringing);
    } else {
      sync_part(2, 128 + kBringing);
    }
  }

  DEVICE void operator()() const {
    const TilePlan plan = lanes.plan();
    if (plan.nothing) return;
    clear_stages();
    if (warp() < kComputing / 32) {
      compute(plan);
    } else {
      bring(plan);
    }
  }
  // What small heads leave out of rows must not be NaN.
  DEVICE void clear_stages() const {
    if (lanes.call.kv.padded_key() < 16 * KeySteps || lanes.call.kv.padded_value() < 32 * Groups) {
      const Shared<std::byte> first = stage(0);
      for (int i = thread() * 16; i < kStages * kStageBytes; i += kThreads * 16) store(first + i, Words<4>{0, 0, 0, 0});
      fence_shared();
    }
    sync_block();
  }

  // ---- The warpgroup that brings blocks

  // A task of a thread is 16 bytes of four pairs of dimensions, for four tokens; or of four pairs of tokens, for four dimensions. It gives 16
  // bytes of each of four rows. 8 neighbouring lanes load from four parts of 32 bytes, and store to 8 different groups of banks.
  struct Task {
    int four;   // which four tokens of a page, or dimensions of 16
    int chunk;  // which 16 bytes of a row
  };
  DEVICE static Task task() { return {lane() % 2 + lane() / 8 % 2 * 2, lane() / 2 % 4 * 2 + lane() / 16}; }
  struct Pages {
    Global<const std::byte> cache;  // the KV head's page 0
    Global<const int32_t> table;
    int begin, end;  // pages with tokens that the tile sees

    DEVICE int number(int page) const { return page >= begin && page < end ? table[page] : -1; }
  };
  // The page numbers of a block that a thread needs: of its keys, and of the two pages of its values. Negative: there is no such page.
  struct Numbers {
    int key[kKeyPages], value[2];
  };
  DEVICE static Numbers numbers(const Pages& pages, int block) {
    const int first = block * kBlockPages, half = task().chunk / 4 * 2;
    Numbers numbers;
    UNROLL
    for (int x = 0; x < kKeyPages; ++x)
      numbers.key[x] = pages.number(first + warp() % kBringingWarps + x * kBringingWarps);
    UNROLL
    for (int x = 0; x < 2; ++x) numbers.value[x] = pages.number(first + half + x);
    return numbers;
  }
  DEVICE Global<const uint32_t> page(const Pages& pages, int number, int offset) const {
    return cast<const uint32_t>(
        pages.cache +
        (static_cast<uint64_t>(number < 0 ? 0 : number) * lanes.call.kv.page_stride + static_cast<uint64_t>(offset)));
  }

  struct Loaded {
    Words<4> keys[kKeyPages][kKeyTiles][4], values[kValueTasks][4];
  };
  DEVICE void load_block(const Pages& pages, const Numbers& now, Loaded& to) const {
    const Task mine = task();
    const Words<4> zeros{0, 0, 0, 0};
    UNROLL
    for (int x = 0; x < kKeyPages; ++x) {
      const Global<const uint32_t> keys = page(pages, now.key[x], 0) + mine.four * 4;
      UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        const int chunk = 8 * tile + mine.chunk;
        const bool exists = now.key[x] >= 0 && chunk < lanes.call.kv.padded_key() / 8;
        UNROLL
        for (int k = 0; k < 4; ++k) to.keys[x][tile][k] = exists ? load<4>(keys + (4 * chunk + k) * 16) : zeros;
      }
    }
    UNROLL
    for (int x = 0; x < kValueTasks; ++x) {
      const int block = warp() % kBringingWarps + kBringingWarps * x;
      const bool exists = block < lanes.call.kv.padded_value() / 16;
      UNROLL
      for (int k = 0; k < 4; ++k) {
        const int number = now.value[k / 2], pair = k % 2 * 4 + mine.chunk % 4;
        to.values[x][k] =
            exists && number >= 0
                ? load<4>(page(pages, number, lanes.call.kv.values_offset) + (block * 128 + pair * 16 + mine.four * 4))
                : zeros;
      }
    }
  }
  // tokens: of the block, before the end of the sequence.
  DEVICE void store_block(const Loaded& from, int tokens, Shared<std::byte> to) const {
    const Task mine = task();
    UNROLL
    for (int x = 0; x < kKeyPages; ++x) {
      const int in_block = warp() % kBringingWarps + x * kBringingWarps, eighth = in_block % 2 * 4 + mine.four;
      UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        const Shared<std::byte> rows =
            to + (tile * kKeyTile + in_block / 2 * 4 * 1024 + eighth * 128 + (mine.chunk ^ eighth) * 16);
        const Words<4>(&four)[4] = from.keys[x][tile];
        UNROLL
        for (int j = 0; j < 4; ++j)
          store(rows + j * 1024, Words<4>{four[0].w[j], four[1].w[j], four[2].w[j], four[3].w[j]});
      }
    }
    uint32_t masks[4] = {~0u, ~0u, ~0u, ~0u};
    if (tokens < kBlockTokens) {
      UNROLL
      for (int k = 0; k < 4; ++k) {
        const int token = mine.chunk / 4 * 32 + k * 8 + mine.chunk % 4 * 2;
        masks[k] = token >= tokens ? 0 : token + 1 == tokens ? 0xffff : ~0u;
      }
    }
    UNROLL
    for (int x = 0; x < kValueTasks; ++x) {
      const int block = warp() % kBringingWarps + kBringingWarps * x, eighth = block % 2 * 4 + mine.four;
      const Shared<std::byte> rows =
          to + (kKeyBytes + block / 2 * 4 * 1024 + eighth * 128 + (mine.chunk ^ eighth) * 16);
      UNROLL
      for (int j = 0; j < 4; ++j) {
        store(rows + j * 1024, Words<4>{from.values[x][0].w[j] & masks[0], from.values[x][1].w[j] & masks[1],
                                        from.values[x][2].w[j] & masks[2], from.values[x][3].w[j] & masks[3]});
      }
    }
  }
  DEVICE void bring(const TilePlan& plan) const {
    const Pages pages{Global<const std::byte>(lanes.call.kv.head(0, plan.kv_head)), lanes.call.tables + plan.tile.table,
                      plan.seen.begin / kPageTokens, (plan.seen.end - 1) / kPageTokens + 1};
    const int end = plan.tile.position + plan.tile.rows;
    Loaded loaded;
    load_block(pages, numbers(pages, plan.block_begin), loaded);
    Numbers next = numbers(pages, plan.block_begin + 1);
    for (int block = plan.block_begin; block < plan.block_end; ++block) {
      store_block(loaded, end - block * kBlockTokens, stage(block));
      fence_shared();
      if (block + 1 < plan.block_end) {
        load_block(pages, next, loaded);
        next = numbers(pages, block + 2);
      }
      meet(0);
      meet(1);
    }
  }

  // ---- The warpgroups that compute

  DEVICE void compute(const TilePlan& plan) const {
    const typename Lanes::Lane me = lanes.lane_of(plan);
    // Only this lane reads them.
    const Shared<uint32_t> queries =
        shared<uint32_t>(static_cast<size_t>(kQueriesAt)) + (warp() * KeySteps * 32 + lane()) * 4;
    for (int step = 0; step < KeySteps; ++step) {
      Words<4> words;
      lanes.query_words(plan.tile, plan.kv_head, me.first, step, words.w);
      store(queries + step * 128, words);
    }
    typename Lanes::State state;
    state.totals[0] = state.totals[1] = SplitSums::none();
    state.begin_split();
    for (int block = plan.block_begin; block < plan.block_end; ++block) {
      const Shared<std::byte> keys = stage(block), values = keys + kKeyBytes;
      meet(warp() / 4);
      typename Lanes::Scores scores = {};
      Words<4> q[KeySteps];
      UNROLL
      for (int step = 0; step < KeySteps; ++step) q[step] = load<4>(queries + step * 128);
      hold_products(flat(scores));
      fence_products();
      UNROLL
      for (int step = 0; step < KeySteps; ++step) {
        multiply_bf16_wide<kBlockTokens>(flat(scores), q[step].w,
                                         product_rows(keys + (step / 4 * kKeyTile + step % 4 * 32)));
      }
      commit_products();
      wait_products<0>();
      hold_products(flat(scores));
      typename Lanes::Weights words;
      lanes.weigh_block(plan, me, block, Shared<const std::byte>(keys), state, scores, words);
      hold_products(flat(state.acc));
      fence_products();
      UNROLL
      for (int product = 0; product < 4; ++product)
        multiply_bf16_wide<32 * Groups>(flat(state.acc), words[product], product_rows(values + product * 32));
      commit_products();
      wait_products<0>();
      hold_products(flat(state.acc));
      if (lanes.finish_split(plan, me, block, state)) return;
    }
  }
  // The registers of a product, four for each 8 columns.
  template <int N>
  DEVICE static auto flat(float (&numbers)[N][4][4]) -> float (&)[16 * N] {
    return reinterpret_cast<float(&)[16 * N]>(numbers);
  }
};

}  // namespace quire::cuda
