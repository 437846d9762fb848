// What the kernels of attention have in common: their arguments, which tokens a query sees, and how parts of its softmax are merged.
//
// The definition is that of kernels/kernels.h with sums as a GPU's matrix units take them. A query's tokens are cut at absolute
// positions into splits of kSplitTokens, those into blocks of kBlockTokens. A split is an online softmax of its own, block by block;
// splits are merged in order. So the result of a query depends neither on the other queries of its tile nor on which block of threads
// computes which split. Scores are in powers of two: a weight is 2^(score - max).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/kv_pages.h"
#include "cuda/kernels/turn_heads.h"

namespace quire::cuda {

inline constexpr int kSplitTokens = 512, kBlockTokens = 64;
inline constexpr int kBlockPages = kBlockTokens / kPageTokens;
inline constexpr float kLog2E = 1.44269504088896341f;

DEVICE float minus_infinity() { return bits_float(0xff800000u); }

// A tile of the queries of a span. A span's queries for one KV head are numbered by row and then by head: query n is that of row
// n / group and of the group's head n % group.
struct QueryTile {
  int table;      // page n of the sequence is tables[table + n]; entries before the first visible page do not exist
  int row, rows;  // the span's rows
  int position;   // of the span's first row
  int first, queries;  // of the tile
};

// Tokens [begin, end).
struct Seen {
  int begin, end;
};

struct AttentionCall {
  Global<const float> q;
  Global<float> out;
  uint64_t q_stride, out_stride;  // floats from row to row
  KvPages kv;
  Global<const QueryTile> tiles;
  Global<const int32_t> tables;
  Global<const float> slopes, sinks;  // nullptr: none
  // Results of splits: [tiles][kv_heads][splits][tile_queries][padded values], and the same of (max, sum). nullptr: a block of threads
  // computes all splits of its queries.
  Global<float> partials, partial_sums;
  int splits, tile_queries;
  int group;  // query heads of a KV head
  int window;
  float scale, soft_cap;
  float to_powers;                // what turns a score as score_of() leaves it into powers of two
  HeadTurn turn_key, turn_value;  // of int4 caches
  bool causal;
  bool only_span;    // no other span of the step can write keys and values that this one's queries see
  bool whole_words;  // results may be stored four at a time

  // What a query at a position sees of a sequence of `end` tokens.
  DEVICE Seen seen_at(int position, int end) const {
    const int begin = window > 0 && position + 1 > window ? position + 1 - window : 0;
    if (causal) return {begin, position + 1};
    return {begin, window > 0 && position + window < end ? position + window : end};
  }
  DEVICE Seen seen(const QueryTile& tile, int query) const {
    return seen_at(tile.position + query / group, tile.position + tile.rows);
  }
  DEVICE int head(int kv_head, int query) const { return kv_head * group + query % group; }
  DEVICE Global<const float> query(const QueryTile& tile, int kv_head, int query) const {
    return q + (static_cast<uint64_t>(tile.row + query / group) * q_stride +
                static_cast<uint64_t>(head(kv_head, query) * kv.key_dim));
  }
  DEVICE Global<float> result(const QueryTile& tile, int kv_head, int query) const {
    return out + (static_cast<uint64_t>(tile.row + query / group) * out_stride +
                  static_cast<uint64_t>(head(kv_head, query) * kv.value_dim));
  }
  // The number of a query's partial result.
  DEVICE uint64_t partial(int tile, int kv_head, int split, int query) const {
    return static_cast<uint64_t>((tile * kv.kv_heads + kv_head) * splits + split) *
               static_cast<uint64_t>(tile_queries) +
           static_cast<uint64_t>(query);
  }

  DEVICE bool is_plain() const { return soft_cap == 0 && slopes == nullptr; }
  // The score of a product, of a token at this distance. Plain scores stay products: to_powers scales them.
  DEVICE float score_of(float product, float slope, int distance) const {
    float score = product * scale;
    if (soft_cap != 0) score = soft_cap * tanh_of(score / soft_cap);
    return fma_of(slope, -static_cast<float>(distance < 0 ? -distance : distance), score);
  }
};

// How a split's result joins that of the splits before it: values = values * before + next * after.
struct Merge {
  float before, after;
  bool keeps, takes;  // one of the two has no tokens: the other one stays as it is

  DEVICE float operator()(float value, float next) const {
    return keeps ? value : takes ? next : fma_of(value, before, next * after);
  }
};

// The largest scores are those of the splits before, of the next one, and of both.
DEVICE Merge merge_of(float before, float next, float both) {
  Merge merge{1, 1, next == minus_infinity(), before == minus_infinity()};
  if (!merge.keeps && !merge.takes) {
    merge.before = exp2_of(before - both);
    merge.after = exp2_of(next - both);
  }
  return merge;
}

// The largest score and the sum of weights of some splits.
struct SplitSums {
  float max, sum;

  DEVICE static SplitSums none() { return {minus_infinity(), 0}; }
  DEVICE Merge absorb(const SplitSums& next) {
    const float top = max_of(max, next.max);
    const Merge merge = merge_of(max, next.max, top);
    sum = merge(sum, next.sum);
    max = top;
    return merge;
  }
  // What values are multiplied by at the end. The sink is a split with sum 1 and values 0.
  DEVICE float finish(const AttentionCall& call, int head) const {
    if (call.sinks == nullptr) return 1.0f / sum;
    const float sink = call.sinks[head] * kLog2E, top = max_of(max, sink), before = exp2_of(max - top);
    return before / fma_of(sum, before, exp2_of(sink - top));
  }
};

}  // namespace quire::cuda
