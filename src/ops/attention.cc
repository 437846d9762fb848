#include "ops/ops.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

constexpr int kRowsPerQuantizeTile = 4;

// Splits whose results are kept at a time: at least those of one tile, and enough to keep all threads busy.
int most_partials(int threads, int max_positions) {
  return (max_positions + kAttentionSplit - 1) / kAttentionSplit + 8 * threads;
}
size_t tile_floats(int head_dim) {
  return static_cast<size_t>(kMaxTileQueries) * static_cast<size_t>((head_dim + 15) / 16 * 16 + 2);
}

size_t partial_bytes(int threads, int max_positions, int head_dim) {
  return static_cast<size_t>(most_partials(threads, max_positions)) * tile_floats(head_dim) * sizeof(float);
}
// Each row and KV head may need tiles of its own, one for each kMaxTileQueries query heads.
size_t most_tiles(int max_rows, int heads, int kv_heads) {
  const int group = heads / kv_heads, group_tiles = (group + kMaxTileQueries - 1) / kMaxTileQueries;
  return static_cast<size_t>(max_rows) * static_cast<size_t>(kv_heads * group_tiles);
}

}  // namespace

void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows) {
  const int tiles = (rows + kRowsPerQuantizeTile - 1) / kRowsPerQuantizeTile;
  compute.team.for_tiles(tiles, [&](int tile, int) {
    const int begin = tile * kRowsPerQuantizeTile;
    compute.kernels.quantize(args, begin, std::min(rows, begin + kRowsPerQuantizeTile));
  });
}

void linears(const Compute& compute, std::span<const LinearArgs> list, int rows) {
  int panels = 0;
  for (const LinearArgs& args : list) panels += args.weights->panels();
  // Tiles consist of whole groups of the panels that the kernel processes together, if that leaves enough tiles for all
  // threads.
  const int together = compute.kernels.linear_panels,
            group = panels >= 2 * together * compute.team.size() ? together : 1;
  const auto groups_of = [group](const LinearArgs& args) { return (args.weights->panels() + group - 1) / group; };
  int groups = 0;
  for (const LinearArgs& args : list) groups += groups_of(args);
  // Eight tiles per thread: the others can take tiles from a thread that is slowed down.
  const int wanted = compute.team.size() * 8;
  const int tile_rows = compute.kernels.linear_rows, row_tiles = (rows + tile_rows - 1) / tile_rows;
  const int group_tiles = std::clamp(wanted, 1, groups);
  compute.team.for_tiles(row_tiles * group_tiles, [&](int tile, int) {
    const int row_begin = tile / group_tiles * tile_rows, row_end = std::min(rows, row_begin + tile_rows);
    int begin = static_cast<int>(int64_t{groups} * (tile % group_tiles) / group_tiles);
    int end = static_cast<int>(int64_t{groups} * (tile % group_tiles + 1) / group_tiles);
    for (const LinearArgs& args : list) {  // the tile's panels, matrix by matrix
      const int count = groups_of(args);
      if (begin < count && end > 0) {
        compute.kernels.linear(args, std::max(0, begin) * group, std::min(end * group, args.weights->panels()),
                               row_begin, row_end);
      }
      begin -= count;
      end -= count;
    }
  });
}

AttentionOp::AttentionOp(const Team& team, int max_rows, int max_positions, int heads, int kv_heads, int head_dim)
    : tile_floats_(tile_floats(head_dim)),
      most_partials_(most_partials(team.size(), max_positions)),
      split_below_(2 * team.size()),
      partials_(partial_bytes(team.size(), max_positions, head_dim)) {
  tiles_.reserve(most_tiles(max_rows, heads, kv_heads));
}

size_t AttentionOp::memory_bytes(int threads, int max_rows, int max_positions, int heads, int kv_heads, int head_dim) {
  return most_tiles(max_rows, heads, kv_heads) * sizeof(AttentionTile) +
         partial_bytes(threads, max_positions, head_dim);
}

void AttentionOp::run(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans) {
  const int group = args.heads / args.kv->kv_heads, heads = std::min(group, kMaxTileQueries),
            rows = std::max(1, kMaxTileQueries / heads);
  tiles_.clear();
  int most_splits = 0;
  for (const AttentionSpan& span : spans) {
    // Rows are the inner loop, so that a thread's next tile finds the head's keys and values in its cache.
    for (int head = 0; head < args.heads; head += std::min(heads, group - head % group)) {
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
                          .heads = std::min(heads, group - head % group),
                          .split_begin = begin,
                          .split_end = end});
      }
    }
  }
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
