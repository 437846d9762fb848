// Attention by matrix units, for caches whose numbers are bf16 or codes.
//
// A block of threads takes a tile of queries of one KV head: `Tiles` times 16 queries, each computed by `Slices` warps (attention_lanes.h). It
// reads the cache in blocks of 64 tokens, which are copied to shared memory ahead of their use. There, one load of 16 bytes gives a lane the
// words of four products at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/attention_call.h"
#include "cuda/kernels/attention_codes.h"
#include "cuda/kernels/attention_lanes.h"
#include "cuda/kernels/unroll.h"
#include "kernels/types.h"

namespace quire::cuda {

// KeySteps: the most steps of 16 dimensions of a key, with Slices 1. Groups: the most groups of 32 dimensions of values of a warp.
template <int Tiles, int Slices, int KeySteps, int Groups, bool Codes>
struct AttendTiles {
  using Lanes = AttentionLanes<Tiles, Slices, Groups, Codes>;
  using Lane = typename Lanes::Lane;
  static constexpr const char* kName = Slices == 1 ? "attend_tiles" : "attend_slices";
  static constexpr int kThreads = Lanes::kThreads;
  static constexpr bool kWaits = true;
  static constexpr int kWarps = Lanes::kWarps;
  static_assert(kWarps % kBlockPages == 0);

  Lanes lanes;

  DEVICE void operator()() const {
    const TilePlan plan = lanes.plan();
    // Where keys and values of tokens before the span's rows are of earlier steps, their copies begin while earlier launches run. Turned
    // queries lie where copies go.
    Copier copies = copier(plan);
    const bool turns = Codes && lanes.call.kv.type == KvType::kInt4;
    const bool early = lanes.call.only_span && !plan.nothing && !turns &&
                       (plan.block_begin + lanes.at.stages) * kBlockTokens <= plan.tile.position;
    if (early) begin_copies(copies, plan);
    wait_previous();
    if (plan.nothing) return;
    const Lane me = lanes.lane_of(plan);
    if (turns) turn_queries(plan);
    if (!turns && !early) begin_copies(copies, plan);
    uint32_t q[Slices == 1 ? KeySteps : 1][4];
    load_queries(plan, me, q);
    if (turns) {
      sync_block();
      begin_copies(copies, plan);
    }

    const int steps = lanes.call.kv.padded_key() / 16;
    typename Lanes::State state;
    state.totals[0] = state.totals[1] = SplitSums::none();
    state.begin_split();
    for (int block = plan.block_begin; block < plan.block_end; ++block) {
      wait_for_slot();
      sync_block();
      copy_values(copies, block + lanes.at.stages - 1);
      typename Lanes::Scores scores;
      multiply_keys(keys_of(block), me, q, steps, scores);
      typename Lanes::Weights words;
      lanes.weigh_block(plan, me, block, Shared<const std::byte>(key_slot(block) + lanes.call.kv.values_offset), state,
                        scores, words);
      wait_for_slot();
      sync_block();
      copy_keys(copies, block + lanes.at.stages);
      if constexpr (Slices == 4) {
        const Shared<const uint32_t> weights =
            shared<const uint32_t>(static_cast<size_t>(lanes.at.weights)) + (warp() / Slices * 128 + lane()) * 4;
        UNROLL
        for (int product = 0; product < 4; ++product) {
          const Words<4> four = load<4>(weights + product * 128);
          UNROLL
          for (int w = 0; w < 4; ++w) words[product][w] = four.w[w];
        }
        if constexpr (!Codes) lanes.add_weights(words, state);
      }
      multiply_values(values_of(block, plan.tile.position + plan.tile.rows), me, words, state.acc);
      if (lanes.finish_split(plan, me, block, state)) return;
    }
  }

  // ---- Copies

  struct Copier {
    Global<const std::byte> cache;  // the KV head's page 0
    Global<const int32_t> table;
    int page_begin, page_end;  // pages with tokens that the tile sees
    int block_end;
    int number,
        next_number;  // of the warp's page in the block that is copied, and in the next one; negative: it does not exist

    // A number is loaded long before its page is copied.
    DEVICE int number_in(int block) const {
      const int page = block * kBlockPages + warp() % kBlockPages;
      return page >= page_begin && page < page_end ? table[page] : -1;
    }
    DEVICE void advance(int block) {
      number = next_number;
      next_number = number_in(block + 1);
    }
  };
  DEVICE Copier copier(const TilePlan& plan) const {
    Copier copier{Global<const std::byte>(lanes.call.kv.head(0, plan.kv_head)),
                  lanes.call.tables + plan.tile.table,
                  plan.seen.begin / kPageTokens,
                  (plan.seen.end - 1) / kPageTokens + 1,
                  plan.block_end,
                  -1,
                  -1};
    copier.next_number = copier.number_in(plan.block_begin);
    return copier;
  }
  // Blocks are copied in order, keys before values. A page of a block is copied by kWarps / kBlockPages warps. Pages that do not exist become zeros.
  DEVICE void copy_page(const Copier& copier, Shared<std::byte> slot, bool keys) const {
    constexpr int kParts = kWarps / kBlockPages;
    const int in_block = warp() % kBlockPages;
    const bool exists = copier.number >= 0;
    const Global<const std::byte> from =
        copier.cache + static_cast<uint64_t>(exists ? copier.number : 0) * lanes.call.kv.page_stride;
    const int begin = keys ? 0 : lanes.call.kv.values_offset,
              end = keys ? lanes.call.kv.values_offset : lanes.call.kv.scales_offset;
    const Shared<std::byte> to = slot + in_block * (keys ? lanes.at.key_page : lanes.at.value_page);
    const int width = 32 * kParts, mine = warp() / kBlockPages * 32 + lane(), units = (end - begin) / 16;
    for (int unit = mine; unit < units; unit += width) {
      const int place = Codes ? unit : keys ? key_unit(unit) : value_unit(unit, in_block);
      copy_async<16>(to + place * 16, from + (begin + unit * 16), exists);
    }
    if (Codes && keys) {
      const int scales = lanes.at.key_page - lanes.call.kv.values_offset;
      for (int byte = mine * 16; byte < scales; byte += width * 16)
        copy_async<16>(to + (lanes.call.kv.values_offset + byte), from + (lanes.call.kv.scales_offset + byte), exists);
    }
  }
  DEVICE Shared<std::byte> key_slot(int block) const {
    return shared<std::byte>(
        static_cast<size_t>(lanes.at.keys + block % lanes.at.stages * kBlockPages * lanes.at.key_page));
  }
  DEVICE Shared<std::byte> value_slot(int block) const {
    return shared<std::byte>(
        static_cast<size_t>(lanes.at.values + block % lanes.at.stages * kBlockPages * lanes.at.value_page));
  }
  DEVICE void copy_keys(Copier& copier, int block) const {
    copier.advance(block);
    if (block < copier.block_end) copy_page(copier, key_slot(block), true);
    commit_copies();
  }
  DEVICE void copy_values(const Copier& copier, int block) const {
    if (block < copier.block_end) copy_page(copier, value_slot(block), false);
    commit_copies();
  }
  DEVICE void begin_copies(Copier& copies, const TilePlan& plan) const {
    for (int stage = 0; stage < lanes.at.stages; ++stage) {
      copy_keys(copies, plan.block_begin + stage);
      if (stage + 1 < lanes.at.stages) copy_values(copies, plan.block_begin + stage);
    }
  }
  // Copies are committed in the order in which they are waited for. So with n stages all but the last 2 n - 2 have been done.
  DEVICE void wait_for_slot() const {
    if (lanes.at.stages == 1) {
      wait_copies<0>();
    } else if (lanes.at.stages == 2) {
      wait_copies<2>();
    } else {
      wait_copies<4>();
    }
  }

  // ---- Tiles of bf16 numbers

  DEVICE int key_units() const { return lanes.call.kv.padded_key() * 2; }  // of a page
  DEVICE int value_units() const { return lanes.call.kv.padded_value() * 2; }

  // The block's keys as words; of codes after a barrier.
  DEVICE Shared<const uint32_t> keys_of(int block) const {
    if constexpr (!Codes) return cast<const uint32_t>(key_slot(block));
    const Shared<const std::byte> from = key_slot(block);
    const Shared<uint32_t> to = shared<uint32_t>(static_cast<size_t>(lanes.at.tile));
    if (lanes.call.kv.type == KvType::kInt4) {
      unpack_int4_keys(from, from + lanes.call.kv.values_offset, lanes.at.key_page, kBlockPages, key_units(), to);
    } else {
      unpack_bytes(lanes.call.kv.type, true, from, lanes.at.key_page, kBlockPages, key_units(), to);
    }
    sync_block();
    return Shared<const uint32_t>(to);
  }
  DEVICE Shared<const uint32_t> values_of(int block, int end) const {
    const Shared<std::byte> slot = value_slot(block);
    if constexpr (!Codes) {
      clear_after(end - block * kBlockTokens, cast<uint32_t>(slot));
      return cast<const uint32_t>(slot);
    }
    const Shared<uint32_t> to = shared<uint32_t>(static_cast<size_t>(lanes.at.tile));
    if (lanes.call.kv.type == KvType::kInt4) {
      unpack_int4_values(Shared<const std::byte>(slot), lanes.at.value_page, kBlockPages, value_units(), to);
    } else {
      unpack_bytes(lanes.call.kv.type, false, Shared<const std::byte>(slot), lanes.at.value_page, kBlockPages,
                   value_units(), to);
    }
    sync_block();
    return Shared<const uint32_t>(to);
  }
  // Slots after the last token may hold anything, such as NaN, whose product with a weight of 0 is not 0.
  DEVICE void clear_after(int tokens, Shared<uint32_t> values) const {
    if (tokens >= kBlockTokens || tokens % kPageTokens == 0) return;
    const int page = tokens / kPageTokens, slot = tokens % kPageTokens, units = value_units();
    const Shared<uint32_t> words = values + page * units * 4;
    for (int i = thread(); i < units * 4; i += kThreads) {
      const int pair = i / 16 % 8, word = value_unit(i / 4, page) * 4 + i % 4;
      if (2 * pair >= slot) {
        words[word] = 0;
      } else if (2 * pair + 1 == slot) {
        words[word] = words[word] & 0xffff;
      }
    }
    sync_block();
  }

  // ---- Queries and products

  // Words of queries to registers, or to shared memory, which the next barrier shows to all.
  DEVICE void load_queries(const TilePlan& plan, const Lane& me, uint32_t (&q)[Slices == 1 ? KeySteps : 1][4]) const {
    if constexpr (Slices == 1) {
      UNROLL
      for (int step = 0; step < KeySteps; ++step) lanes.query_words(plan.tile, plan.kv_head, me.first, step, q[step]);
    } else {
      const int steps = lanes.call.kv.padded_key() / 16;
      const Shared<uint32_t> queries =
          shared<uint32_t>(static_cast<size_t>(lanes.at.queries)) + warp() / Slices * steps * 128;
      for (int step = me.slice; step < steps; step += Slices) {
        Words<4> words;
        lanes.query_words(plan.tile, plan.kv_head, me.first, step, words.w);
        store(queries + (step * 32 + lane()) * 4, words);
      }
    }
  }
  // Of int4 caches.
  DEVICE void turn_queries(const TilePlan& plan) const {
    for (int local = warp(); local < plan.tile.queries; local += kWarps) {
      const Shared<float> turned = shared<float>(0) + local * lanes.call.kv.padded_key();
      const Global<const float> from = lanes.call.query(plan.tile, plan.kv_head, plan.tile.first + local);
      for (int d = lane(); d < lanes.call.kv.key_dim; d += 32) turned[d] = from[d];
      sync_warp();
      turn_head(lanes.call.turn_key, turned);
    }
    sync_block();
  }
  DEVICE void multiply_keys(Shared<const uint32_t> keys, const Lane& me,
                            const uint32_t (&q)[Slices == 1 ? KeySteps : 1][4], int steps,
                            typename Lanes::Scores& scores) const {
    const int g = lane() / 4, i = lane() % 4, page_words = key_units() * 4;
    UNROLL
    for (int half = 0; half < Lanes::kHalves; ++half) {
      UNROLL
      for (int j = 0; j < Lanes::kProducts; ++j) {
        UNROLL
        for (int e = 0; e < 4; ++e) scores[half][j][e] = 0;
      }
    }
    if constexpr (Slices == 1) {
      const Shared<const uint32_t> from = keys + (g / 4 * page_words + i * 16 + (g % 4 ^ (i & 2)) * 4);
      UNROLL
      for (int step = 0; step < KeySteps; ++step) {
        if (step >= steps) break;
        UNROLL
        for (int half = 0; half < 2; ++half) {
          const Words<4> low = load<4>(from + (half * 2 * page_words + step * 128)),
                         high = load<4>(from + (half * 2 * page_words + step * 128 + 64));
          UNROLL
          for (int j = 0; j < 4; ++j) {
            const uint32_t b[2] = {low.w[j], high.w[j]};
            multiply_bf16(scores[half][j], q[step], b);
          }
        }
      }
    } else {
      const int page = me.slice / 2 * 2 + g / 4;
      const Shared<const uint32_t> from =
          keys + (page * page_words + i * 16 + (g % 4 ^ (i & 2)) * 4 + me.slice % 2 * 2);
      const Shared<const uint32_t> queries =
          shared<const uint32_t>(static_cast<size_t>(lanes.at.queries)) + (warp() / Slices * steps * 32 + lane()) * 4;
      UNROLL
      for (int step = 0; step < steps; ++step) {
        const Words<4> a = load<4>(queries + step * 128);
        const Words<2> low = load<2>(from + step * 128), high = load<2>(from + (step * 128 + 64));
        UNROLL
        for (int j = 0; j < 2; ++j) {
          const uint32_t b[2] = {low.w[j], high.w[j]};
          multiply_bf16(scores[0][j], a.w, b);
        }
      }
    }
  }

  DEVICE void multiply_values(Shared<const uint32_t> values, const Lane& me, const typename Lanes::Weights& weights,
                              typename Lanes::Results& acc) const {
    const int g = lane() / 4, i = lane() % 4, page_words = value_units() * 4,
              last_block = lanes.call.kv.padded_value() / 16 - 1;
    const Shared<const uint32_t> from = values + (i / 2 * page_words + (i & 1) * 256 / 4 + (g % 4 ^ (i & 1) * 2) * 4);
    const int low_at = (i >> 1) * 16, high_at = 16 - low_at;
    // Groups are the inner loop, so that products of one result are far apart. The last group may have 16 dimensions: the others' results
    // are not used.
    UNROLL
    for (int product = 0; product < 4; ++product) {
      UNROLL
      for (int n = 0; n < Groups; ++n) {
        const int group = me.slice + n * Slices;
        if (group >= lanes.groups()) break;
        const int block = 2 * group + g / 4, at_block = (block < last_block ? block : last_block) * 128;
        const Shared<const uint32_t> pairs = from + (product / 2 * 2 * page_words + at_block + product % 2 * 32);
        const Words<4> low = load<4>(pairs + low_at), high = load<4>(pairs + high_at);
        UNROLL
        for (int j = 0; j < 4; ++j) {
          const uint32_t b[2] = {low.w[j], high.w[j]};
          multiply_bf16(acc[n][j], weights[product], b);
        }
      }
    }
  }
};

}  // namespace quire::cuda
