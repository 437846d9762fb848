// Attention over a team: tiles of queries read the cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "ops/attention.h"
#include "ops/communicator.h"
#include "ops/cpu/compute.h"
#include "ops/operation_limits.h"

namespace quire {

struct AttentionArgs;  // kernels/kernels.h
struct AttentionTile;
struct KvLayer;

// The pages of a layer as kernels read them: page numbers are units of its group.
KvLayer kv_layer(const CacheMemory& cache, int layer);

// As Operations::position_and_store().
void position_and_store(const Compute& compute, const PositionArgs& args, std::span<const AttentionSpan> spans,
                        int rows);

// Cuts the spans into tiles and runs them. Allocates its tile list and its memory for splits once, not in each step.
class AttentionOp {
 public:
  struct Limits {
    int max_rows, max_positions;  // in a step, in a sequence
    int tiles_per_row;            // the most of any layer: tiles_per_row()
    int value_dim;                // the largest
  };
  static int tiles_per_row(int heads, int kv_heads);
  static Limits limits_of(const OperationLimits& limits);
  AttentionOp(const Team& team, const Limits& limits);
  ~AttentionOp();
  AttentionOp(const AttentionOp&) = delete;
  AttentionOp& operator=(const AttentionOp&) = delete;
  // As Operations::attend().
  void run(const Compute& compute, const AttentionSpec& spec, std::span<const AttentionSpan> spans);
  // What it comes down to, for any memory of a layer; for some of the query heads, or all.
  void run_tiles(const Compute& compute, const AttentionArgs& args, Share of_heads,
                 std::span<const AttentionSpan> spans);
  void run_tiles(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans);

  // What the constructor allocates: the tile list and the splits' results.
  static size_t memory_bytes(int threads, const Limits& limits);

 private:
  size_t tile_floats_;  // for one tile's partial results
  int most_partials_;
  int split_below_;  // below this number of tiles, they are cut into splits
  std::vector<AttentionTile> tiles_;
  LargeBuffer partials_;  // [most_partials_][tile_floats_]
};

}  // namespace quire
