#include "ops/cpu/attention.h"

#include <algorithm>
#include <cassert>

#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "ops/communicator.h"
#include "ops/cpu/rows.h"
#include "ops/ranks/shares.h"

namespace quire {
namespace {

// Splits whose results are kept at a time: at least those of one tile, and enough to keep all threads busy.
int most_partials(int threads, int max_positions) {
  return (max_positions + kAttentionSplit - 1) / kAttentionSplit + 8 * threads;
}
size_t tile_floats(int value_dim) {
  return static_cast<size_t>(kMaxTileQueries) * static_cast<size_t>(padded_head(value_dim) + 2);
}

size_t partial_bytes(int threads, const AttentionOp::Limits& l) {
  if (l.tiles_per_row == 0) return 0;  // no layer attends
  return static_cast<size_t>(most_partials(threads, l.max_positions)) * tile_floats(l.value_dim) * sizeof(float);
}
size_t most_tiles(const AttentionOp::Limits& l) {
  return static_cast<size_t>(l.max_rows) * static_cast<size_t>(l.tiles_per_row);
}

// This rank's heads of a layer; without other ranks, all.
HeadShare own_heads(const Compute& compute, const LayerCache& layer, const Rows& attended, int heads) {
  if (!compute.ranks) return {.queries = {0, heads}, .attended = {}};
  return head_share(number_of(*compute.ranks), layer, attended, heads);
}

// What concerns the heads in this rank's cache. first_stored: of its KV heads, the first that goes there.
struct OwnPosition {
  PositionArgs args;
  int first_stored = 0;
};
OwnPosition own_position(const Compute& compute, const PositionArgs& a) {
  const LayerCache& layer = a.cache.layout().layers()[static_cast<size_t>(a.layer)];
  if (!compute.ranks || layer.model_kv_heads == 0) return {a};
  const HeadShare own = own_heads(compute, layer, {}, a.heads);
  if (joins_heads(a.q_norm, a.heads) || joins_heads(a.k_norm, layer.model_kv_heads)) return {a, own.first_kv};
  PositionArgs args = a;
  args.heads = own.queries.size();
  args.q = a.q.columns(own.queries.begin * a.key_dim, args.heads * a.key_dim);
  args.q_norm = some_heads(a.q_norm, own.queries.begin, args.heads);
  if (a.k.cols == 0) return {args};
  args.k = a.k.columns(own.first_kv * a.key_dim, layer.kv_heads * a.key_dim);
  args.v = a.v.columns(own.first_kv * a.value_dim, layer.kv_heads * a.value_dim);
  args.k_norm = some_heads(a.k_norm, own.first_kv, layer.kv_heads);
  args.v_norm = some_heads(a.v_norm, own.first_kv, layer.kv_heads);
  return {args};
}

// One row: what PositionArgs describes.
void position_row(const Compute& compute, const OwnPosition& own, const KvLayer& kv, int row, int page, int slot) {
  const KernelSet& kernels = compute.kernels;
  const PositionArgs& a = own.args;
  float* const q = a.q.row(row);
  float* const k = a.k.cols > 0 ? a.k.row(row) : nullptr;
  float* const v = a.v.cols > 0 ? a.v.row(row) : nullptr;
  const auto key_stride = static_cast<size_t>(a.key_dim);
  const StoreKvArgs store{.k = k ? k + own.first_stored * a.key_dim : nullptr,
                          .v = v ? v + own.first_stored * a.value_dim : nullptr,
                          .k_stride = key_stride,
                          .v_stride = static_cast<size_t>(a.value_dim),
                          .kv = &kv,
                          .page = page,
                          .slot = slot};
  if (k) kernels.prefetch_kv(store);
  const auto norm = [&](float* x, int cols, const HeadNorm& n) {
    if (!x || n.norm.kind == NormKind::kNone) return;
    kernels.normalize({.kind = n.norm.kind,
                       .x = x,
                       .x_stride = 0,
                       .y = x,
                       .y_stride = 0,
                       .size = cols / n.groups,
                       .groups = n.groups,
                       .weight = n.norm.weight,
                       .bias = n.norm.bias,
                       .weight_stride = n.weight_stride,
                       .epsilon = n.norm.epsilon},
                      0, 1);
  };
  const auto norm_heads = [&] {
    norm(q, a.q.cols, a.q_norm);
    norm(k, a.k.cols, a.k_norm);
  };
  if (!a.norm_after_rope) norm_heads();
  norm(v, a.v.cols, a.v_norm);
  if (a.clip > 0) {
    const auto clip = [&](float* x, int cols) {
      for (int i = 0; i < cols; ++i) x[i] = std::clamp(x[i], -a.clip, a.clip);
    };
    clip(q, a.q.cols), clip(k, a.k.cols), clip(v, a.v.cols);
  }
  const float scale = a.q_scales ? a.q_scales[row] : 1.0f;
  const auto rotate = [&](float* x, int cols, float by) {
    if (!x || (a.kind == RopeKind::kNone && by == 1)) return;
    kernels.rotate({.x = x,
                    .heads = cols / a.key_dim,
                    .head_dim = a.key_dim,
                    .head_stride = key_stride,
                    .offset = a.rope_offset,
                    .cos_sin = a.kind == RopeKind::kNone ? nullptr : a.cos_sin.row(row),
                    .rope_dim = a.kind == RopeKind::kNone ? 0 : a.rope_dim,
                    .kind = a.kind,
                    .scale = by});
  };
  rotate(q, a.q.cols, scale);
  rotate(k, a.k.cols, 1);
  if (a.norm_after_rope) norm_heads();
  if (k) kernels.store_kv(store);
}

}  // namespace

KvLayer kv_layer(const CacheMemory& cache, int index) {
  const CacheLayout& layout = cache.layout();
  const LayerCache& layer = layout.layers()[static_cast<size_t>(index)];
  assert(layer.kind == LayerCache::Kind::kKeysValues);
  return {.data = cache.units_data().data() + layout.offset_of(index),
          .page_stride = layout.unit_bytes(),
          .head_stride = kv_head_bytes(layout.type(), layer.key_dim, layer.value_dim),
          .type = layout.type(),
          .kv_heads = layer.kv_heads,
          .key_dim = layer.key_dim,
          .value_dim = layer.value_dim};
}

void position_and_store(const Compute& compute, const PositionArgs& args, std::span<const AttentionSpan> spans,
                        int rows) {
  const KvLayer kv = kv_layer(args.cache, args.layer);
  const OwnPosition own = own_position(compute, args);
  const auto span_rows = [&](const AttentionSpan& span, int begin, int end) {
    for (int i = begin; i < end; ++i) {
      const int position = span.position + i;
      position_row(compute, own, kv, span.row + i, span.pages[position / kPageTokens], position % kPageTokens);
    }
  };
  if (spans.size() > 1) {
    compute.team.for_tiles(static_cast<int>(spans.size()), [&](int tile, int) {
      const AttentionSpan& span = spans[static_cast<size_t>(tile)];
      span_rows(span, 0, span.rows);
    });
    return;
  }
  // Rows by the page: one thread stores all tokens of a page (StoreKvArgs).
  const AttentionSpan& span = spans[0];
  const int first = span.position / kPageTokens, last = (span.position + rows - 1) / kPageTokens;
  compute.team.for_tiles(last - first + 1, [&](int tile, int) {
    const int page_begin = (first + tile) * kPageTokens - span.position;
    span_rows(span, std::max(0, page_begin), std::min(rows, page_begin + kPageTokens));
  });
}

// Each row and KV head may need tiles of its own, one for each kMaxTileQueries query heads.
int AttentionOp::tiles_per_row(int heads, int kv_heads) {
  return kv_heads * ((heads / kv_heads + kMaxTileQueries - 1) / kMaxTileQueries);
}

AttentionOp::Limits AttentionOp::limits_of(const OperationLimits& limits) {
  Limits most{limits.max_rows, limits.max_positions, 0, 0};
  for (const OperationLimits::AttentionHeads& a : limits.attention) {
    most.tiles_per_row = std::max(most.tiles_per_row, tiles_per_row(a.heads, a.kv_heads));
    most.value_dim = std::max(most.value_dim, a.value_dim);
  }
  return most;
}

AttentionOp::AttentionOp(const Team& team, const Limits& limits)
    : tile_floats_(tile_floats(limits.value_dim)),
      most_partials_(most_partials(team.size(), limits.max_positions)),
      split_below_(2 * team.size()),
      partials_(partial_bytes(team.size(), limits)) {
  tiles_.reserve(most_tiles(limits));
}

size_t AttentionOp::memory_bytes(int threads, const Limits& limits) {
  return most_tiles(limits) * sizeof(AttentionTile) + partial_bytes(threads, limits);
}

AttentionOp::~AttentionOp() = default;

void AttentionOp::run(const Compute& compute, const AttentionSpec& spec, std::span<const AttentionSpan> spans) {
  const KvLayer kv = kv_layer(spec.cache, spec.layer);
  AttentionArgs args{.q = spec.q.data,
                     .q_stride = spec.q.stride,
                     .out = spec.out.data,
                     .out_stride = spec.out.stride,
                     .kv = &kv,
                     .heads = spec.heads,
                     .scale = spec.scale,
                     .window = spec.window,
                     .causal = spec.causal,
                     .soft_cap = spec.soft_cap,
                     .slopes = spec.slopes,
                     .sinks = spec.sinks};
  if (!compute.ranks) return run_tiles(compute, args, spans);

  const LayerCache& layer = spec.cache.layout().layers()[static_cast<size_t>(spec.layer)];
  const HeadShare own = own_heads(compute, layer, spec.out, spec.heads);
  Share heads = own.queries;
  if (layer.model_kv_heads > 0) {  // the kernels see a model of these heads
    const int first = heads.begin;
    args.q += static_cast<ptrdiff_t>(first) * layer.key_dim;
    args.out += static_cast<ptrdiff_t>(first) * layer.value_dim;
    if (args.slopes) args.slopes += first;
    if (args.sinks) args.sinks += first;
    args.heads = heads.size();
    heads = {0, args.heads};
  }
  run_tiles(compute, args, heads, spans);
  int rows = 0;
  for (const AttentionSpan& span : spans) rows = std::max(rows, span.row + span.rows);
  const SharedColumns gathered[] = {own.attended};
  compute.ranks->gather(gathered, rows);
}

void AttentionOp::run_tiles(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans) {
  run_tiles(compute, args, {0, args.heads}, spans);
}

void AttentionOp::run_tiles(const Compute& compute, const AttentionArgs& args, Share of_heads,
                            std::span<const AttentionSpan> spans) {
  const int group = args.heads / args.kv->kv_heads, heads = std::min(group, kMaxTileQueries),
            rows = std::max(1, kMaxTileQueries / heads);
  tiles_.clear();
  int most_splits = 0;
  for (const AttentionSpan& span : spans) {
    // Rows are the inner loop, so that a thread's next tile finds the head's keys and values in its cache.
    for (int head = of_heads.begin, next; head < of_heads.end; head = next) {
      next = std::min(head + std::min(heads, group - head % group), of_heads.end);
      for (int row = 0; row < span.rows; row += rows) {
        const int count = std::min(rows, span.rows - row), position = span.position + row;
        const int tokens = span.position + span.rows;
        const int last = args.causal       ? position + count
                         : args.window > 0 ? std::min(tokens, position + count - 1 + args.window)
                                           : tokens;
        const int begin = args.window > 0 ? std::max(0, position + 1 - args.window) / kAttentionSplit : 0,
                  end = (last - 1) / kAttentionSplit + 1;
        most_splits = std::max(most_splits, end - begin);
        tiles_.push_back({.pages = span.pages,
                          .row = span.row + row,
                          .rows = count,
                          .position = position,
                          .end = tokens,
                          .head = head,
                          .heads = next - head,
                          .split_begin = begin,
                          .split_end = end});
      }
    }
  }
  if (tiles_.empty()) return;  // other ranks have all heads
  for (size_t i = 0; i + 1 < tiles_.size(); ++i) tiles_[i].next = &tiles_[i + 1];
  const auto count = static_cast<int>(tiles_.size());
  if (most_splits == 1 || count >= split_below_) {
    compute.team.for_tiles(count,
                           [&](int tile, int) { compute.kernels.attention(args, tiles_[static_cast<size_t>(tile)]); });
    return;
  }
  // Few long sequences: a tile for each split, merged afterwards, in batches of as many tiles as have room.
  const int at_once = most_partials_ / most_splits;
  assert(at_once > 0);
  const auto partial = [&](int tile, int split) {
    return partials_.as<float>() + static_cast<size_t>(tile * most_splits + split) * tile_floats_;
  };
  for (int first = 0; first < count; first += at_once) {
    const AttentionTile* const tiles = &tiles_[static_cast<size_t>(first)];
    const int here = std::min(at_once, count - first);
    compute.team.for_tiles(here * most_splits, [&](int i, int) {
      AttentionTile tile = tiles[i / most_splits];
      const int split = i % most_splits;
      if (tile.split_begin + split >= tile.split_end) return;
      tile.split_begin += split;
      tile.split_end = tile.split_begin + 1;
      tile.partial = partial(i / most_splits, split);
      compute.kernels.attention(args, tile);
    });
    compute.team.for_tiles(here, [&](int i, int) {
      const AttentionTile& tile = tiles[i];
      compute.kernels.merge(args, {.row = tile.row,
                                   .rows = tile.rows,
                                   .head = tile.head,
                                   .heads = tile.heads,
                                   .partials = partial(i, 0),
                                   .split_stride = tile_floats_,
                                   .splits = tile.split_end - tile.split_begin});
    });
  }
}

}  // namespace quire
