#include "cuda/attention/attention.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <vector>

#include "cuda/attention/attention_shapes.h"
#include "cuda/attention/kv_pages.h"
#include "cuda/kernels/attention_merge.h"
#include "cuda/kernels/attention_plain.h"
#include "cuda/kernels/attention_tiles.h"
#include "cuda/kernels/attention_wide.h"
#include "cuda/ranks/rank_gather.h"
#include "kernels/kernels.h"

namespace quire::cuda {
namespace {

// A number of splits that stays the same while sequences grow a little, as do the launches of a step then.
int rounded_splits(int splits) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(splits))); }
int splits_of(int tokens) { return (tokens + kSplitTokens - 1) / kSplitTokens; }

size_t partial_floats(int value_dim) { return static_cast<size_t>(padded_head(value_dim)) + 2; }

// The tokens that the queries of some rows of a span see.
Seen seen_by(const AttentionSpec& spec, const AttentionSpan& span, int first_row, int last_row) {
  const int first = span.position + first_row, last = span.position + last_row, end = span.position + span.rows;
  return {spec.window > 0 ? std::max(0, first + 1 - spec.window) : 0, spec.causal ? last + 1
                                                                      : spec.window > 0
                                                                          ? std::min(end, last + spec.window)
                                                                          : end};
}

void add_tiles(const AttentionSpec& spec, const AttentionSpan& span, int table, int group, int most, TileList& list) {
  const int all = span.rows * group;
  for (int first = 0; first < all; first += most) {
    const int count = std::min(most, all - first);
    const Seen seen = seen_by(spec, span, first / group, (first + count - 1) / group);
    list.tiles.push_back({.table = table,
                          .row = span.row,
                          .rows = span.rows,
                          .position = span.position,
                          .first = first,
                          .queries = count});
    list.splits = std::max(list.splits, (seen.end - 1) / kSplitTokens + 1 - seen.begin / kSplitTokens);
    list.queries = std::max(list.queries, count);
  }
}

void fill(Stream& stream, const AttentionSpec& spec, std::span<const AttentionSpan> spans, TileLists& lists) {
  // The page tables, without pages that no query sees: those may no longer exist.
  std::vector<int32_t>& tables = lists.tables;
  const TileLists::Key& key = lists.key;
  for (const AttentionSpan& span : spans) {
    const Seen seen = seen_by(spec, span, 0, span.rows - 1);
    const int begin = seen.begin / kPageTokens, end = (seen.end - 1) / kPageTokens + 1;
    const int table = static_cast<int>(tables.size()) - begin;
    tables.insert(tables.end(), span.pages + begin, span.pages + end);
    const bool is_large = span.rows * key.group > 2 * key.few_queries;
    add_tiles(spec, span, table, key.group, is_large ? key.many_queries : key.few_queries,
              is_large ? lists.many : lists.few);
  }
  lists.placed_tables = Global<const int32_t>(stream.place(std::span<const int32_t>(tables)));
  // The longest first, so that no block of threads begins when the others have ended.
  std::reverse(lists.many.tiles.begin(), lists.many.tiles.end());
  for (TileList* list : {&lists.few, &lists.many})
    list->placed = Global<const QueryTile>(stream.place(std::span<const QueryTile>(list->tiles)));
}

template <int Tiles, int Slices, int KeySteps, int Groups>
void launch_tiles(Stream& stream, const AttentionCall& call, const AttentionShape& shape, int x) {
  const auto launch = [&](const auto& kernel) {
    stream.launch({.x = x, .y = call.kv.kv_heads, .threads = kernel.kThreads, .shared_bytes = shape.shared_bytes},
                  kernel);
  };
  if (has_codes(call.kv.type)) {
    launch(AttendTiles<Tiles, Slices, KeySteps, Groups, true>{{call, shape.places}});
  } else {
    launch(AttendTiles<Tiles, Slices, KeySteps, Groups, false>{{call, shape.places}});
  }
}

template <int KeySteps, int Groups>
void launch_wide(Stream& stream, const AttentionCall& call, const AttentionShape& shape, int x) {
  using Kernel = AttendWide<KeySteps, Groups>;
  stream.launch({.x = x, .y = call.kv.kv_heads, .threads = Kernel::kThreads, .shared_bytes = shape.shared_bytes},
                Kernel{{call, shape.places}});
}

template <int Tiles>
void launch_slices(Stream& stream, const AttentionCall& call, const AttentionShape& shape, int x) {
  switch (shape.groups) {
    case 1:
      return launch_tiles<Tiles, 4, 0, 1>(stream, call, shape, x);
    case 2:
      return launch_tiles<Tiles, 4, 0, 2>(stream, call, shape, x);
    case 4:
      return launch_tiles<Tiles, 4, 0, 4>(stream, call, shape, x);
    default:
      return launch_tiles<Tiles, 4, 0, 5>(stream, call, shape, x);
  }
}

void launch_attention(Stream& stream, const AttentionCall& call, const AttentionShape& shape, int x) {
  if (shape.plain) {
    stream.launch({.x = x,
                   .y = call.kv.kv_heads,
                   .z = call.tile_queries,
                   .threads = AttendPlain::kThreads,
                   .shared_bytes = shape.shared_bytes},
                  AttendPlain{call});
  } else if (shape.wide) {
    shape.key_steps == 4 ? launch_wide<4, 2>(stream, call, shape, x) : launch_wide<8, 4>(stream, call, shape, x);
  } else if (shape.slices == 4) {
    shape.tiles == 1 ? launch_slices<1>(stream, call, shape, x) : launch_slices<2>(stream, call, shape, x);
  } else {
    shape.key_steps == 4 ? launch_tiles<8, 1, 4, 2>(stream, call, shape, x)
                         : launch_tiles<8, 1, 8, 4>(stream, call, shape, x);
  }
}

// Computes a list's tiles: each by one block of threads for each KV head, or, if those are few, by one for each split, whose results
// are merged afterwards.
void run_tiles(Stream& stream, AttentionCall call, const AttentionShape& shape, const TileList& list,
               const AttentionMemory& memory) {
  const auto count = static_cast<int>(list.tiles.size());
  if (count == 0) return;
  call.tiles = list.placed;
  call.tile_queries = list.queries;
  call.splits = 1;
  const int splits = rounded_splits(list.splits);
  const size_t partials = static_cast<size_t>(call.kv.kv_heads) * static_cast<size_t>(splits) *
                          static_cast<size_t>(list.queries),
               bytes = partials * partial_floats(call.kv.value_dim) * sizeof(float);  // of a tile
  // Results of splits of few queries are small next to the keys and values that were read for them. Those of large tiles are not.
  const int processors = stream.facts().processors;
  const bool few_blocks = count * call.kv.kv_heads < (shape.queries() > 16 ? processors / 2 : 4 * processors);
  if (list.splits == 1 || !few_blocks || bytes > memory.size) {
    launch_attention(stream, call, shape, count);
    return;
  }
  const int at_once = static_cast<int>(std::min<size_t>(memory.size / bytes, static_cast<size_t>(count)));
  call.splits = splits;
  call.partials = Global<float>(reinterpret_cast<float*>(memory.data));
  call.partial_sums = call.partials + static_cast<ptrdiff_t>(static_cast<size_t>(at_once) * partials *
                                                             static_cast<size_t>(padded_head(call.kv.value_dim)));
  const Global<const QueryTile> tiles = call.tiles;
  for (int first = 0; first < count; first += at_once) {
    const int here = std::min(at_once, count - first);
    call.tiles = tiles + first;
    launch_attention(stream, call, shape, here * splits);
    stream.launch({.x = here,
                   .y = call.kv.kv_heads,
                   .z = list.queries,
                   .threads = MergeSplits::kThreads,
                   .shared_bytes = rotates_heads(call.kv.type) ? padded_head(call.kv.value_dim) * 4 : 0},
                  MergeSplits{call});
  }
}

}  // namespace

size_t AttentionMemory::bytes(const OperationLimits& limits) {
  size_t row = 0;
  for (const OperationLimits::AttentionHeads& a : limits.attention) {
    const int group = a.heads / a.kv_heads, tiles = (group + 15) / 16, queries = std::min(group, 16);
    const auto splits = static_cast<size_t>(rounded_splits(splits_of(limits.max_positions)));
    row = std::max(
        row, static_cast<size_t>(a.kv_heads * tiles * queries) * splits * partial_floats(a.value_dim) * sizeof(float));
  }
  return std::min(row * static_cast<size_t>(std::max(limits.max_rows, 1)), std::max(row, kUsual));
}

namespace {

// attend() for the heads in the cache.
void attend_own(Stream& stream, AttentionLists& all_lists, const AttentionSpec& spec,
                std::span<const AttentionSpan> spans, const AttentionMemory& memory) {
  const KvPages kv = kv_pages(spec.cache, spec.layer);
  const int group = spec.heads / kv.kv_heads;
  const AttentionShapes shapes = attention_shapes(kv, stream.facts());
  const auto [lists, known] = all_lists.tiles(stream, spans,
                                              {.window = spec.window,
                                               .group = group,
                                               .few_queries = shapes.few.queries(),
                                               .many_queries = shapes.many.queries(),
                                               .causal = spec.causal});
  if (!known) fill(stream, spec, spans, lists);

  AttentionCall call{.q = Global<const float>(spec.q.data),
                     .out = Global<float>(spec.out.data),
                     .q_stride = spec.q.stride,
                     .out_stride = spec.out.stride,
                     .kv = kv,
                     .tiles = nullptr,
                     .tables = lists.placed_tables,
                     .slopes = Global<const float>(spec.slopes),
                     .sinks = Global<const float>(spec.sinks),
                     .partials = nullptr,
                     .partial_sums = nullptr,
                     .splits = 1,
                     .tile_queries = 0,
                     .group = group,
                     .window = spec.window,
                     .scale = spec.scale,
                     .soft_cap = spec.soft_cap,
                     .to_powers = spec.soft_cap == 0 && spec.slopes == nullptr ? spec.scale * kLog2E : kLog2E,
                     .turn_key = head_turn(kv.key_dim),
                     .turn_value = head_turn(kv.value_dim),
                     .causal = spec.causal,
                     .only_span = spans.size() == 1,
                     .whole_words = kv.value_dim % 4 == 0 && spec.out.stride % 4 == 0 &&
                                    reinterpret_cast<uintptr_t>(spec.out.data) % 16 == 0};
  run_tiles(stream, call, shapes.few, lists.few, memory);
  run_tiles(stream, call, shapes.many, lists.many, memory);
}

}  // namespace

void attend(Stream& stream, AttentionLists& lists, const AttentionSpec& spec, std::span<const AttentionSpan> spans,
            const AttentionMemory& memory) {
  RankGather* const ranks = stream.ranks();
  const LayerCache& layer = spec.cache.layout().layers()[static_cast<size_t>(spec.layer)];
  // With fewer KV heads than ranks, each rank has the whole cache. Heads that share one KV head can be shared all the same.
  if (!ranks || (layer.model_kv_heads == 0 && layer.kv_heads > 1))
    return attend_own(stream, lists, spec, spans, memory);
  const HeadShare own = head_share(ranks->number(), layer, spec.out, spec.heads);
  const int first = own.queries.begin, count = own.queries.size();
  if (count > 0) {
    AttentionSpec part = spec;
    part.q = spec.q.columns(first * layer.key_dim, count * layer.key_dim);
    part.out = spec.out.columns(first * layer.value_dim, count * layer.value_dim);
    part.heads = count;
    if (part.slopes) part.slopes += first;
    if (part.sinks) part.sinks += first;
    attend_own(stream, lists, part, spans, memory);
  }
  int rows = 0;
  for (const AttentionSpan& span : spans) rows = std::max(rows, span.row + span.rows);
  const SharedColumns gathered[] = {own.attended};
  ranks->gather(stream, gathered, rows);
}

}  // namespace quire::cuda
