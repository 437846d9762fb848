// What a warp does with the scores and the results of 16 queries: the same for all kernels of attention by matrix units, whatever brings
// keys and values to it. So they give a query the same bits.
//
// A warp multiplies 16 queries by 32 or 16 tokens at a time, in the layouts of alphabet.h, with g = lane() / 4 and i = lane() % 4. A lane has the
// numbers of queries g and g + 8.
//
// Column n of product j of keys, n < 8, is token 16 (n / 4) + 4 (n % 4) + j of 32, and the dimension of a result likewise of 32 dimensions,
// which are a group. A lane's scores then belong to the tokens 8 i .. 8 i + 7, and are pairs of neighbours, as the products of weights with
// values need them. Those take pairs in the order
//
//   product s of 32 tokens, word h (rows 2i, 2i+1 or 2i+8, 2i+9):  tokens 8 i + 4 s + 2 h and the next one
//
// With Slices 1, a warp has all of a block's scores and results. With 4, warp 2 h + p of a tile has the scores of products 2 p and 2 p + 1 of
// half h of a block, and the results of every fourth group. Warps exchange scores' maxima and weights through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/unroll.h"
#include "kernels/types.h"

namespace quire::cuda {

// Where things lie in the shared memory of a block, in bytes. Keys, with all scales, and values have `stages` slots of a block of tokens each.
struct AttentionPlaces {
  int totals;   // of the splits until now: [results of a warp / 4][threads][4] floats
  int turned;   // results that are turned back
  int queries;  // Slices 4: [Tiles][key steps][32 lanes][4] words
  int weights;  // Slices 4: [Tiles][4 products][32 lanes][4] words
  int sums;     // Slices 4: [Tiles][4 warps][16 queries] floats
  int tile;     // of codes: a block's keys or values in bf16
  int keys, values;
  int key_page, value_page;  // bytes from page to page in a slot
  int stages;                // 1, 2 or 3
};

// What a block of threads computes.
struct TilePlan {
  QueryTile tile;
  int tile_number, kv_head, split_of_block;
  Seen seen;      // by any of its queries, in its splits
  Seen everyone;  // by all of its queries
  int block_begin, block_end;
  bool nothing;  // there is no such split
};

// Tiles, Slices: of the kernel, and all its threads. Groups: the most groups of a warp.
template <int Tiles, int Slices, int Groups, bool Codes>
struct AttentionLanes {
  static constexpr int kThreads = 32 * Tiles * Slices;
  static constexpr int kWarps = Tiles * Slices;
  static constexpr int kQueries = 16 * Tiles;
  static constexpr int kHalves = Slices == 1 ? 2 : 1;    // of 32 tokens, whose scores a warp has
  static constexpr int kProducts = Slices == 1 ? 4 : 2;  // of 8 tokens of each
  static_assert(Slices == 1 || Slices == 4);

  using Scores = float[kHalves][kProducts][4];
  using Results = float[Groups][4][4];
  using QuarterSums = float[kHalves * 2][2];
  using Weights = uint32_t[4][4];  // words of products

  AttentionCall call;
  AttentionPlaces at;

  struct Lane {
    int first;     // its warp's first query
    int slice;     // of Slices
    int query[2];  // its two queries, of the span
    int position[2];
  };

  // What a lane knows of its queries.
  struct State {
    SplitSums totals[2];  // of the splits before
    // Of the split until now.
    float max[2];
    float sums[4];             // without codes: a product's
    QuarterSums quarter_sums;  // of codes: of two products' weights
    Results acc;

    DEVICE void begin_split() {
      max[0] = max[1] = minus_infinity();
      UNROLL
      for (int e = 0; e < 4; ++e) sums[e] = 0;
      UNROLL
      for (int quarter = 0; quarter < kHalves * 2; ++quarter) quarter_sums[quarter][0] = quarter_sums[quarter][1] = 0;
      UNROLL
      for (int group = 0; group < Groups; ++group) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
          UNROLL
          for (int e = 0; e < 4; ++e) acc[group][j][e] = 0;
        }
      }
    }
    DEVICE void scale(const float (&by)[2]) {
      UNROLL
      for (int group = 0; group < Groups; ++group) {
        UNROLL
        for (int j = 0; j < 4; ++j) {
          UNROLL
          for (int e = 0; e < 4; ++e) acc[group][j][e] *= by[e / 2];
        }
      }
      UNROLL
      for (int e = 0; e < 4; ++e) sums[e] *= by[e / 2];
      UNROLL
      for (int quarter = 0; quarter < kHalves * 2; ++quarter) {
        UNROLL
        for (int r = 0; r < 2; ++r) quarter_sums[quarter][r] *= by[r];
      }
    }
  };

  // Query number `local` of the tile, or the last one.
  DEVICE int query_of(const QueryTile& tile, int local) const {
    return tile.first + (local < tile.queries ? local : tile.queries - 1);
  }

  DEVICE TilePlan plan() const {
    TilePlan plan;
    plan.tile_number = block_x() / call.splits;
    plan.split_of_block = block_x() % call.splits;
    plan.kv_head = block_y();
    plan.tile = call.tiles[plan.tile_number];
    const Seen first = call.seen(plan.tile, plan.tile.first),
               last = call.seen(plan.tile, query_of(plan.tile, kQueries));
    plan.seen = {first.begin, last.end};
    plan.everyone = {last.begin, first.end};
    plan.nothing = false;
    if (call.partials != nullptr) {
      const int begin = (plan.seen.begin / kSplitTokens + plan.split_of_block) * kSplitTokens,
                end = begin + kSplitTokens;
      plan.nothing = begin >= plan.seen.end;
      plan.seen = {begin > plan.seen.begin ? begin : plan.seen.begin, end < plan.seen.end ? end : plan.seen.end};
    }
    plan.block_begin = plan.seen.begin / kBlockTokens;
    plan.block_end = (plan.seen.end - 1) / kBlockTokens + 1;
    return plan;
  }

  DEVICE Lane lane_of(const TilePlan& plan) const {
    Lane me;
    me.first = warp() / Slices * 16;
    me.slice = warp() % Slices;
    UNROLL
    for (int r = 0; r < 2; ++r) {
      me.query[r] = query_of(plan.tile, me.first + lane() / 4 + 8 * r);
      me.position[r] = plan.tile.position + me.query[r] / call.group;
    }
    return me;
  }

  // A number of a query, or 0. Turned queries lie in shared memory.
  DEVICE float query_number(const QueryTile& tile, int kv_head, int local, int d) const {
    if (local >= tile.queries || d >= call.kv.key_dim) return 0;
    if (Codes && call.kv.type == KvType::kInt4) return shared<float>(0)[local * call.kv.padded_key() + d];
    return call.query(tile, kv_head, tile.first + local)[d];
  }
  // The words of a step of 16 dimensions of a warp's queries.
  DEVICE void query_words(const QueryTile& tile, int kv_head, int first, int step, uint32_t (&words)[4]) const {
    const int g = lane() / 4, i = lane() % 4;
    UNROLL
    for (int w = 0; w < 4; ++w) {
      const int local = first + g + w % 2 * 8, d = step * 16 + w / 2 * 8 + 2 * i;
      words[w] = pack_bf16(query_number(tile, kv_head, local, d), query_number(tile, kv_head, local, d + 1));
    }
  }

  // ---- Scores

  // The products of a block become its weights, and what the lane knows of tokens before it is made relative to the new maxima. scales: of
  // codes, of the block's first page.
  DEVICE void weigh_block(const TilePlan& plan, const Lane& me, int block, Shared<const std::byte> scales, State& state,
                          Scores& scores, Weights& words) const {
    const int first_token = block * kBlockTokens;
    if (Codes && call.kv.type != KvType::kInt4) scale_products(scales, me, scores);
    if (!call.is_plain()) finish_scores(plan, me, first_token, scores);
    if (first_token < plan.everyone.begin || first_token + kBlockTokens > plan.everyone.end)
      hide(plan, me, first_token, scores);
    float now[2], correction[2];
    largest_scores(me, scores, now);
    bool grew = false;
    UNROLL
    for (int r = 0; r < 2; ++r) {
      now[r] = max_of(state.max[r], now[r] * call.to_powers);
      correction[r] = now[r] == minus_infinity() ? 1.0f : exp2_of(state.max[r] - now[r]);
      grew |= correction[r] != 1;
      state.max[r] = now[r];
    }
    if (ballot(grew) != 0) state.scale(correction);
    weigh(me, scales, state.max, scores, state.quarter_sums, words);
    if constexpr (!Codes && Slices == 1) add_weights(words, state);
  }
  // Weights are added as the products with ones, by the unit that multiplies them with values.
  DEVICE void add_weights(const Weights& words, State& state) const {
    const uint32_t ones[2] = {0x3f803f80u, 0x3f803f80u};
    UNROLL
    for (int product = 0; product < 4; ++product) multiply_bf16(state.sums, words[product], ones);
  }

  // The place in its block of the token of score e of product j.
  DEVICE static int token_of(const Lane& me, int half, int j, int e) {
    if constexpr (Slices == 1) return 32 * half + 8 * (lane() % 4) + j + 4 * (e & 1);
    return 32 * (me.slice / 2) + 8 * (lane() % 4) + 2 * (me.slice % 2) + j + 4 * (e & 1);
  }

  // The scale of a block's key, or value.
  DEVICE float scale_of(Shared<const std::byte> scales, int token, bool value) const {
    const Shared<const std::byte> page = scales + token / kPageTokens * at.key_page;
    const int index = token % kPageTokens + (value ? kPageTokens : 0);
    if (call.kv.type == KvType::kInt8) return cast<const float>(page)[index];
    return low_bf16(cast<const uint16_t>(page)[index]);
  }
  DEVICE void scale_products(Shared<const std::byte> scales, const Lane& me, Scores& scores) const {
    UNROLL
    for (int half = 0; half < kHalves; ++half) {
      UNROLL
      for (int j = 0; j < kProducts; ++j) {
        UNROLL
        for (int e = 0; e < 2; ++e) {
          const float scale = scale_of(scales, token_of(me, half, j, e), false);
          scores[half][j][e] *= scale;
          scores[half][j][2 + e] *= scale;
        }
      }
    }
  }
  DEVICE void finish_scores(const TilePlan& plan, const Lane& me, int first_token, Scores& scores) const {
    float slope[2] = {0, 0};
    if (call.slopes != nullptr) {
      UNROLL
      for (int r = 0; r < 2; ++r) slope[r] = call.slopes[call.head(plan.kv_head, me.query[r])];
    }
    UNROLL
    for (int half = 0; half < kHalves; ++half) {
      UNROLL
      for (int j = 0; j < kProducts; ++j) {
        UNROLL
        for (int e = 0; e < 4; ++e) {
          const int distance = first_token + token_of(me, half, j, e) - me.position[e / 2];
          scores[half][j][e] = call.score_of(scores[half][j][e], slope[e / 2], distance);
        }
      }
    }
  }
  DEVICE void hide(const TilePlan& plan, const Lane& me, int first_token, Scores& scores) const {
    const int end = plan.tile.position + plan.tile.rows;
    const Seen seen[2] = {call.seen_at(me.position[0], end), call.seen_at(me.position[1], end)};
    UNROLL
    for (int half = 0; half < kHalves; ++half) {
      UNROLL
      for (int j = 0; j < kProducts; ++j) {
        UNROLL
        for (int e = 0; e < 4; ++e) {
          const int token = first_token + token_of(me, half, j, e);
          if (token < seen[e / 2].begin || token >= seen[e / 2].end) scores[half][j][e] = minus_infinity();
        }
      }
    }
  }

  DEVICE Shared<float> shared_sums() const {
    return shared<float>(static_cast<size_t>(at.sums)) + warp() / Slices * Slices * 16;
  }
  // The warps of a tile. Barriers have constant numbers: the compiler would reserve all 16 for a variable one.
  DEVICE void sync_tile() const {
    static_assert(Slices == 1 || Tiles <= 2);
    if (Tiles == 1) {
      sync_block();
    } else if (warp() < Slices) {
      sync_part(1, 32 * Slices);
    } else {
      sync_part(2, 32 * Slices);
    }
  }

  // Of each of a lane's two queries.
  DEVICE void largest_scores(const Lane& me, const Scores& scores, float (&largest)[2]) const {
    UNROLL
    for (int r = 0; r < 2; ++r) {
      float most = scores[0][0][2 * r];
      UNROLL
      for (int half = 0; half < kHalves; ++half) {
        UNROLL
        for (int j = 0; j < kProducts; ++j) {
          most = max_of(most, max_of(scores[half][j][2 * r], scores[half][j][2 * r + 1]));
        }
      }
      most = max_of(most, shuffle_xor(most, 1));
      largest[r] = max_of(most, shuffle_xor(most, 2));
    }
    if constexpr (Slices == 4) {
      const Shared<float> all = shared_sums();
      const int g = lane() / 4;
      if (lane() % 4 == 0) {
        all[me.slice * 16 + g] = largest[0];
        all[me.slice * 16 + g + 8] = largest[1];
      }
      sync_tile();
      UNROLL
      for (int r = 0; r < 2; ++r) {
        const int query = g + 8 * r;
        largest[r] = max_of(max_of(all[query], all[16 + query]), max_of(all[32 + query], all[48 + query]));
      }
    }
  }

  // Scores become weights, which are added to the sums of codes, and the words of their products with values: those of all products, or
  // with Slices 4 a part of them, in shared memory.
  DEVICE void weigh(const Lane& me, Shared<const std::byte> scales, const float (&max)[2], Scores& scores,
                    QuarterSums& quarter_sums, Weights& words) const {
    const float reference[2] = {max[0] == minus_infinity() ? 0.0f : max[0], max[1] == minus_infinity() ? 0.0f : max[1]};
    UNROLL
    for (int half = 0; half < kHalves; ++half) {
      UNROLL
      for (int j = 0; j < kProducts; ++j) {
        UNROLL
        for (int e = 0; e < 4; ++e)
          scores[half][j][e] = exp2_of(fma_of(scores[half][j][e], call.to_powers, -reference[e / 2]));
      }
      if constexpr (Codes) {
        UNROLL
        for (int pair = 0; pair < kProducts / 2; ++pair) {
          // With Slices 4 a warp has one quarter of a block.
          const int quarter = Slices == 1 ? half * 2 + pair : 0;
          UNROLL
          for (int r = 0; r < 2; ++r) {
            quarter_sums[quarter][r] += (scores[half][2 * pair][2 * r] + scores[half][2 * pair][2 * r + 1]) +
                                        (scores[half][2 * pair + 1][2 * r] + scores[half][2 * pair + 1][2 * r + 1]);
          }
        }
        UNROLL
        for (int j = 0; j < kProducts; ++j) {
          UNROLL
          for (int e = 0; e < 2; ++e) {
            const float scale = scale_of(scales, token_of(me, half, j, e), true);
            UNROLL
            for (int r = 0; r < 2; ++r) {
              float& weight = scores[half][j][2 * r + e];
              weight =
                  weight == 0 ? 0.0f : weight * scale;  // the scale of a token that a query does not see may be NaN
            }
          }
        }
      }
      UNROLL
      for (int s = 0; s < 2; ++s) {
        if constexpr (Slices == 1) {
          uint32_t(&product)[4] = words[2 * half + s];
          product[0] = pack_bf16(scores[half][0][s], scores[half][1][s]);
          product[1] = pack_bf16(scores[half][0][2 + s], scores[half][1][2 + s]);
          product[2] = pack_bf16(scores[half][2][s], scores[half][3][s]);
          product[3] = pack_bf16(scores[half][2][2 + s], scores[half][3][2 + s]);
        } else {
          const Words<2> two{pack_bf16(scores[0][0][s], scores[0][1][s]),
                             pack_bf16(scores[0][0][2 + s], scores[0][1][2 + s])};
          store(shared<uint32_t>(static_cast<size_t>(at.weights)) +
                    ((warp() / Slices * 4 + me.slice / 2 * 2 + s) * 128 + lane() * 4 + me.slice % 2 * 2),
                two);
        }
      }
    }
  }

  // The groups of 32 dimensions of a warp's results: me.slice, me.slice + Slices ..
  DEVICE int groups() const { return (call.kv.padded_value() + 31) / 32; }

  // ---- The end of a split

  DEVICE void finish_sums(const Lane& me, const float (&max)[2], const float (&sums)[4],
                          const QuarterSums& quarter_sums, SplitSums (&split)[2]) const {
    UNROLL
    for (int r = 0; r < 2; ++r) split[r] = {max[r], sums[2 * r]};
    if constexpr (Codes) {
      float quarters[4][2];
      UNROLL
      for (int quarter = 0; quarter < kHalves * 2 / (Slices == 1 ? 1 : 2); ++quarter) {
        UNROLL
        for (int r = 0; r < 2; ++r) {
          float sum = quarter_sums[quarter][r];
          sum = sum + shuffle_xor(sum, 1);
          quarters[quarter][r] = sum + shuffle_xor(sum, 2);
        }
      }
      if constexpr (Slices == 4) {
        const Shared<float> all = shared_sums();
        const int g = lane() / 4;
        sync_tile();  // all have read the maxima
        if (lane() % 4 == 0) {
          all[me.slice * 16 + g] = quarters[0][0];
          all[me.slice * 16 + g + 8] = quarters[0][1];
        }
        sync_tile();
        UNROLL
        for (int quarter = 0; quarter < 4; ++quarter) {
          UNROLL
          for (int r = 0; r < 2; ++r) quarters[quarter][r] = all[quarter * 16 + g + 8 * r];
        }
        sync_tile();  // before maxima take their place
      }
      UNROLL
      for (int r = 0; r < 2; ++r) split[r].sum = (quarters[0][r] + quarters[1][r]) + (quarters[2][r] + quarters[3][r]);
    }
  }

  // Merges the split's results, in acc, with those of the splits before it, in shared memory, where they stay.
  DEVICE void merge_split(bool first, const SplitSums (&split)[2], SplitSums (&totals)[2], const Results& acc) const {
    const Merge merge[2] = {totals[0].absorb(split[0]), totals[1].absorb(split[1])};
    const Shared<uint32_t> before = merged();
    UNROLL
    for (int n = 0; n < Groups; ++n) {
      UNROLL
      for (int j = 0; j < 4; ++j) {
        const Shared<uint32_t> four = before + (n * 4 + j) * kThreads * 4;
        Words<4> words{float_bits(acc[n][j][0]), float_bits(acc[n][j][1]), float_bits(acc[n][j][2]),
                       float_bits(acc[n][j][3])};
        if (!first) {
          const Words<4> old = load<4>(four);
          UNROLL
          for (int e = 0; e < 4; ++e)
            words.w[e] = float_bits(merge[e / 2](bits_float(old.w[e]), bits_float(words.w[e])));
        }
        store(four, words);
      }
    }
  }
  // A lane's merged results: [Groups * 4][threads][4], as acc.
  DEVICE Shared<uint32_t> merged() const { return shared<uint32_t>(static_cast<size_t>(at.totals)) + thread() * 4; }

  // Calls write(local query, dimension, eight numbers from it on) for a lane's results. number(n, j, e) is acc[n][j][e] or the like.
  template <class Number, class Write>
  DEVICE void each_eight(const QueryTile& tile, const Lane& me, Number number, Write write) const {
    UNROLL
    for (int n = 0; n < Groups; ++n) {
      const int d = (me.slice + n * Slices) * 32 + 8 * (lane() % 4);
      if (d >= call.kv.padded_value()) break;
      UNROLL
      for (int r = 0; r < 2; ++r) {
        const int local = me.first + lane() / 4 + 8 * r;
        if (local >= tile.queries) continue;
        float eight[8];
        UNROLL
        for (int k = 0; k < 8; ++k) eight[k] = number(n, k % 4, 2 * r + k / 4);
        write(local, d, eight);
      }
    }
  }
  template <class Memory>
  DEVICE static void store_eight(Memory to, const float (&eight)[8]) {
    UNROLL
    for (int k = 0; k < 8; k += 4)
      store(to + k, Words<4>{float_bits(eight[k]), float_bits(eight[k + 1]), float_bits(eight[k + 2]),
                             float_bits(eight[k + 3])});
  }

  DEVICE void write_partial(const TilePlan& plan, const Lane& me, const SplitSums (&split)[2],
                            const Results& acc) const {
    const uint64_t padded = static_cast<uint64_t>(call.kv.padded_value());
    each_eight(
        plan.tile, me, [&acc](int n, int j, int e) { return acc[n][j][e]; },
        [&](int local, int d, const float(&eight)[8]) {
          store_eight(
              call.partials + (call.partial(plan.tile_number, plan.kv_head, plan.split_of_block, local) * padded +
                               static_cast<uint64_t>(d)),
              eight);
        });
    if (me.slice != 0 || lane() % 4 != 0) return;
    UNROLL
    for (int r = 0; r < 2; ++r) {
      const int local = me.first + lane() / 4 + 8 * r;
      if (local >= plan.tile.queries) continue;
      const Global<float> to =
          call.partial_sums + 2 * call.partial(plan.tile_number, plan.kv_head, plan.split_of_block, local);
      to[0] = split[r].max;
      to[1] = split[r].sum;
    }
  }

  DEVICE void write_results(const TilePlan& plan, const Lane& me, const SplitSums (&totals)[2]) const {
    const float factor[2] = {totals[0].finish(call, call.head(plan.kv_head, me.query[0])),
                             totals[1].finish(call, call.head(plan.kv_head, me.query[1]))};
    const Shared<uint32_t> before = merged();
    const auto number = [&](int n, int j, int e) {
      return bits_float(before[(n * 4 + j) * kThreads * 4 + e]) * factor[e / 2];
    };
    const int dim = call.kv.value_dim, padded = call.kv.padded_value();
    if (!Codes || call.kv.type != KvType::kInt4) {
      each_eight(plan.tile, me, number, [&](int local, int d, const float(&eight)[8]) {
        const Global<float> to = call.result(plan.tile, plan.kv_head, plan.tile.first + local) + d;
        if (call.whole_words && d + 8 <= dim) {
          store_eight(to, eight);
          return;
        }
        UNROLL
        for (int k = 0; k < 8; ++k) {
          if (d + k < dim) to[k] = eight[k];
        }
      });
      return;
    }
    // Turned values are turned back in shared memory, where everything else but the merged results has been read.
    sync_block();
    const Shared<float> turned = shared<float>(static_cast<size_t>(at.turned));
    each_eight(plan.tile, me, number,
               [&](int local, int d, const float(&eight)[8]) { store_eight(turned + (local * padded + d), eight); });
    sync_block();
    for (int local = warp(); local < plan.tile.queries; local += kWarps) {
      turn_head_back(call.turn_value, turned + local * padded);
      const Global<float> to = call.result(plan.tile, plan.kv_head, plan.tile.first + local);
      for (int d = lane(); d < dim; d += 32) to[d] = turned[local * padded + d];
    }
  }

  // At the end of a split, or of all. Returns whether the block of threads has nothing left to do.
  DEVICE bool finish_split(const TilePlan& plan, const Lane& me, int block, State& state) const {
    constexpr int kSplitBlocks = kSplitTokens / kBlockTokens;
    const bool last = block + 1 == plan.block_end;
    if (!last && (block + 1) % kSplitBlocks != 0) return false;
    SplitSums split[2];
    finish_sums(me, state.max, state.sums, state.quarter_sums, split);
    if (call.partials != nullptr) {
      write_partial(plan, me, split, state.acc);
      return true;
    }
    merge_split(block / kSplitBlocks == plan.block_begin / kSplitBlocks, split, state.totals, state.acc);
    if (last) {
      write_results(plan, me, state.totals);
      return true;
    }
    state.begin_split();
    return false;
  }
};

}  // namespace quire::cuda
