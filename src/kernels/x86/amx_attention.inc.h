// Attention over a cache of bf16 or codes on matrix tiles (x86/tiles.h). A chunk of the definition
// is one product for all queries of a tile, which adds it to its sum as the definition does: acc + (even + odd).
//
// The tile unit multiplies while vectors turn earlier products into weights. Between the weights of block b come, in
// this order:
//
//   scores of block b + 1        all chunks of the dimensions, in four tiles of 16 tokens
//   copies of values of b - 1    amx_attention_lines.inc.h
//   values of block b - 1        four tiles of 16 dimensions at a time
//
// So neither unit waits for what the other has just begun. The pipeline runs through all splits of a tile.
//
// Sums of values leave their tiles after each block. Keeping them there would help only while no maximum grows, but in
// block k of a split, one of 16 queries' maxima grows with probability 1 - (1 - 1/k)^16 if scores are random: 88 % even
// in the eighth and last.
#pragma once

#include "kernels/x86/amx_attention_weights.inc.h"
#include "kernels/x86/tiles.h"

namespace quire::QUIRE_ISA {
namespace {

// From this many queries, tiles are faster: a product costs the same for 1 query as for 16, FMAs 16 cycles a query.
constexpr int kTileQueries = 8;

// One tile of queries. Its registers: 0 .. 3 sums, 4 and 5 queries or weights, 6 and 7 lines.
template <KvType kType>
class TiledAttention {
 public:
  TiledAttention(const AttentionArgs& a, const AttentionTile& tile)
      : a_(a),
        tile_(tile),
        kv_(a, tile),
        keys_(*a.kv),
        values_(*a.kv),
        scales_(a.kv->scales_offset()),
        stride_(static_cast<size_t>(a.kv->padded_value())),
        adjusted_(a.soft_cap != 0 || a.slopes || !(a.scale > 0 && a.scale < __builtin_inff())),
        tiles_({tile.rows * tile.heads, kLineBytes}) {
    s_.count = tile.rows * tile.heads;
    for (int i = 0; i < s_.count; ++i) {
      const int next = tile.position + i / tile.heads + 1;
      s_.first[i] = a.window > 0 && next > a.window ? next - a.window : 0;
      s_.end[i] = tokens_end(a, tile, i / tile.heads);
      put_query(i);
    }
    s_.clear();
    for (float(&lanes)[kLanes] : s_.largest) store(lanes, Floats16::all(minus_infinity()));
  }

  void run() {
    const int split_begin = tile_.split_begin * kAttentionSplit, split_end = tile_.split_end * kAttentionSplit,
              first = s_.first[0] > split_begin ? s_.first[0] : split_begin,
              end = s_.end[s_.count - 1] < split_end ? s_.end[s_.count - 1] : split_end;
    if (first < end) attend(first, end);
    if (merged_ == 0) __builtin_memset(totals_, 0, sizeof(float) * static_cast<size_t>(s_.count) * stride_);
    put_results();
  }

 private:
  // A query's chunks as rows of tiles, with zeros after its dimensions.
  void put_query(int i) {
    alignas(64) float q[kMaxHeadDim];
    load_query(a_, tile_.row + i / tile_.heads, tile_.head + i % tile_.heads, q);
    for (int d = 0; d < a_.kv->key_dim; d += kAttentionChunk) {
      put_numbers(round_bf16(Floats16::load(q + d)), round_bf16(Floats16::load(q + d + kLanes)),
                  q_[d / kAttentionChunk][i]);
    }
  }

  // Tokens [first, end), the blocks of all splits in one pipeline.
  void attend(int first, int end) {
    Block now(kv_, first / kAttentionBlock * kAttentionBlock, first, end), next = now, before = now;
    for (int chunk = 0; chunk < keys_.chunks(); ++chunk) {
      keys_.prepare(now, chunk);
      multiply_keys(now, chunk);
    }
    const int jobs = key_jobs() + value_jobs();
    for (bool begun = false;; begun = true) {
      const bool more = now.token + kAttentionBlock < end;
      if (more) {
        next = Block(kv_, now.token + kAttentionBlock, first, end);
        keys_.prepare(next, 0);
      }
      now.begins = !begun || now.token % kAttentionSplit == 0;
      SplitSums ended;
      if (begun && now.begins) ended = s_.end_split();  // but for its last values
      const uint32_t grown = grow_by(now);
      int job = 0;
      const auto work = [&](int until) __attribute__((always_inline)) {
        for (; job < until; ++job) work_on(job, more ? &next : nullptr, begun ? &before : nullptr);
      };
      make_weights<kType>(
          s_, scores(now), weights(now), now, adjusted_ ? 1.0f : a_.scale,
          scales_, [&](int i) __attribute__((always_inline)) { work((i * jobs) / s_.count + 1); });
      work(jobs);
      if (begun && now.begins) {
        merge_split(ended);
      } else if (grown != 0 && begun) {
        correct(s_, grown, sums_, stride_);
      }
      before = now;
      if (!more) break;
      now = next;
    }
    for (int job = 0; job < jobs; ++job) work_on(job, nullptr, &before);
    merge_split(s_.end_split());
  }

  // Raises the maxima to the scores of a block. Returns the queries whose maximum grew.
  uint32_t grow_by(const Block& block) {
    Scores& scores_of = scores(block);
    if (adjusted_) adjust(scores_of, block);
    const auto find = [&]<bool kAll>() {
      if constexpr (has_codes(kType)) {
        if (!adjusted_) return find_largest<kType, true, kAll>(s_, scores_of, block, scales_);
      }
      find_largest<kType, false, kAll>(s_, scores_of, block, scales_);
    };
    s_.all_see(block) ? find.template operator()<true>() : find.template operator()<false>();
    return grow(s_, adjusted_ ? 1.0f : a_.scale);
  }

  // Soft caps, slopes, and scales that are not positive, with which the largest product is not the largest score:
  // scores are completed before their maxima are taken.
  [[gnu::noinline]] void adjust(Scores& scores_of, const Block& block) {
    const std::byte* scales[kBlockPages];
    for (int p = 0; p < kBlockPages; ++p) scales[p] = block.page[p] + scales_;
    for (int i = 0; i < s_.count; ++i) {
      if constexpr (has_codes(kType)) scale_scores<kType>(scores_of[i], scales, 0, block.pages);
      adjust_scores(a_, tile_.head + i % tile_.heads, tile_.position + i / tile_.heads, block.token, scores_of[i]);
    }
  }

  // What is done between the weights of a block, in jobs of up to 4 products: the keys of the next block, chunk by
  // chunk, and the values of the block before, 4 columns of 32 tokens at a time. Either block may be missing.
  int key_jobs() const { return keys_.chunks(); }
  int value_jobs() const { return 2 * ((values_.columns() + 3) / 4); }
  [[gnu::noinline]] void work_on(int job, const Block* next, const Block* before) {
    if (job >= key_jobs()) {
      job -= key_jobs();
      if (before) job % 2 == 0 ? multiply_values<0>(*before, job / 2 * 4) : multiply_values<1>(*before, job / 2 * 4);
      return;
    }
    if (next) {
      multiply_keys(*next, job);
      if (job + 1 < key_jobs()) keys_.prepare(*next, job + 1);
      keys_.prefetch_next(*next, job);
    }
    if (before)
      values_.prepare(*before, values_.columns() * job / key_jobs(), values_.columns() * (job + 1) / key_jobs());
  }

  void multiply_keys(const Block& block, int chunk) {
    chunk % 2 == 0 ? multiply_keys<4>(block, chunk) : multiply_keys<5>(block, chunk);
  }
  template <int kInputs>
  void multiply_keys(const Block& block, int chunk) {
    tiles_.load<kInputs>(q_[chunk], kLineBytes);
    each_of_four(
        block.pages, [&]<int kPage>() __attribute__((always_inline)) {
          constexpr int kLines = 6 + kPage % 2;
          if (chunk == 0) tiles_.zero<kPage>();
          tiles_.load<kLines>(keys_.at(block, kPage, chunk), kLineBytes);
          tiles_.dot_bf16<kPage, kInputs, kLines>();
        });
    if (chunk + 1 < keys_.chunks()) return;
    float* const out = scores(block)[0];
    each_of_four(
        block.pages, [&]<int kPage>() __attribute__((always_inline)) {
          tiles_.store<kPage>(out + kPage * kPageTokens, sizeof scores(block)[0]);
        });
  }

  // A chunk of 32 tokens of up to 4 columns. If no query sees the second chunk, nothing is added.
  template <int kChunk>
  void multiply_values(const Block& block, int column) {
    const int columns = values_.columns() - column;
    const size_t row_bytes = stride_ * sizeof(float);
    float* const sums = sums_ + column * kLanes;
    if (column == 0) tiles_.load<4 + kChunk>(weights(block)[kChunk], kLineBytes);
    each_of_four(
        columns, [&]<int kTile>() __attribute__((always_inline)) {
          if (kChunk == 0 && block.begins) tiles_.zero<kTile>();
          if (kChunk == 0 && !block.begins) tiles_.load<kTile>(sums + kTile * kLanes, row_bytes);
          if (kChunk >= block.chunks()) return;
          tiles_.load<6 + kTile % 2>(values_.at(column + kTile, kChunk), kLineBytes);
          tiles_.dot_bf16<kTile, 4 + kChunk, 6 + kTile % 2>();
        });
    if (kChunk == 0) return;
    each_of_four(
        columns, [&]<int kTile>()
                     __attribute__((always_inline)) { tiles_.store<kTile>(sums + kTile * kLanes, row_bytes); });
  }

  // run.operator()<i>() for i < count, at most 4.
  template <class Run>
  [[gnu::always_inline]] static inline void each_of_four(int count, const Run& run) {
    if (count > 0) run.template operator()<0>();
    if (count > 1) run.template operator()<1>();
    if (count > 2) run.template operator()<2>();
    if (count > 3) run.template operator()<3>();
  }

  // The first split becomes the total.
  void merge_split(const SplitSums& split) {
    if (merged_++ > 0) return absorb_split(total_, totals_, split, sums_, s_.count, stride_);
    float* const values = sums_;
    sums_ = totals_, totals_ = values;
    total_ = split;
    const __mmask16 unseen = _mm512_cmp_ps_mask(split.top.v, _mm512_set1_ps(minus_infinity()), _CMP_EQ_OQ);
    for_each_bit(unseen & ((1u << s_.count) - 1), [&](int i) {
      __builtin_memset(totals_ + static_cast<size_t>(i) * stride_, 0, sizeof(float) * stride_);
    });
  }

  void put_results() {
    alignas(64) float top[kLanes], sum[kLanes];
    store(top, total_.top), store(sum, total_.sum);
    for (int i = 0; i < s_.count; ++i) {
      float* const values = totals_ + static_cast<size_t>(i) * stride_;
      if (tile_.partial) {
        float* out = tile_.partial + static_cast<size_t>(i) * (stride_ + 2);
        out[0] = top[i];
        out[1] = sum[i];
        __builtin_memcpy(out + 2, values, sizeof(float) * stride_);
      } else {
        finish(a_, tile_.row + i / tile_.heads, tile_.head + i % tile_.heads, top[i], sum[i], values);
      }
    }
  }

  Scores& scores(const Block& block) { return scores_[block.token / kAttentionBlock % 2]; }
  Weights& weights(const Block& block) { return weights_[block.token / kAttentionBlock % 2]; }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Pages kv_;
  KeyLines<kType> keys_;
  ValueLines<kType> values_;
  const size_t scales_;  // where a page has them
  const size_t stride_;  // floats between the values of two queries
  const bool adjusted_;
  Tiles tiles_;
  TileQueries s_;
  SplitSums total_{Floats16::all(minus_infinity()), Floats16::all(0.0f)};
  int merged_ = 0;                                   // splits in `total_` and `totals_`
  float *sums_ = memory_[0], *totals_ = memory_[1];  // sums of values: of this split, and of the splits before it
  alignas(64) uint16_t q_[kMaxHeadDim / kAttentionChunk][kMaxTileQueries][kAttentionChunk];
  alignas(64) Scores scores_[2];    // for two blocks
  alignas(64) Weights weights_[2];  // the same
  alignas(64) float memory_[2][kMaxTileQueries * kMaxHeadDim];
};

void tile_attention(const AttentionArgs& a, const AttentionTile& tile) {
  if (!multiplies_bf16(a.kv->type) || tile.rows * tile.heads < kTileQueries)
    return avx512_kernels()->attention(a, tile);
  switch (a.kv->type) {
    case KvType::kInt8:
      return TiledAttention<KvType::kInt8>(a, tile).run();
    case KvType::kInt4:
      return TiledAttention<KvType::kInt4>(a, tile).run();
    case KvType::kFp8:
      return TiledAttention<KvType::kFp8>(a, tile).run();
    default:
      return TiledAttention<KvType::kBf16>(a, tile).run();
  }
}

}  // namespace
}  // namespace quire::QUIRE_ISA
