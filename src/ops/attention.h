// Attention over a team: queries and keys are rotated, keys and values go to the cache, and tiles of queries read it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "ops/cache_memory.h"
#include "ops/compute.h"
#include "ops/rows.h"

namespace quire {

struct AttentionArgs;  // kernels/kernels.h
struct AttentionTile;

// Rows of one sequence in a step, at consecutive positions.
struct AttentionSpan {
  const int32_t* pages;  // the sequence's page table
  int row, rows;
  int position;  // of the first row
};

// What happens to queries, keys and values between their projections and attention.
struct PositionArgs {
  Rows q, k, v;  // k and v: of no columns if another layer has stored them
  int heads, key_dim, value_dim;
  HeadNorm q_norm, k_norm, v_norm;
  bool norm_after_rope = false;  // of queries and keys
  float clip = 0;                // 0: none
  // Rotation: the cosines and sines of each row's position; kNone: none.
  RopeKind kind = RopeKind::kNone;
  int rope_dim = 0, rope_offset = 0;  // elements [offset, offset + dim) of each head
  Rows cos_sin;
  const float* q_scales = nullptr;  // [rows], or nullptr
  const CacheMemory& cache;
  int layer;
};
// Each row: norms, clipping, rotation (or rotation before the norms of queries and keys), and the key and value into
// the cache.
void position_and_store(const Compute& compute, const PositionArgs& args, std::span<const AttentionSpan> spans,
                        int rows);

// Scaled products of queries with the keys that they see, softmax, and the weighted sum of values.
struct AttentionSpec {
  Rows q;    // [rows, heads * key_dim]
  Rows out;  // [rows, heads * value_dim]
  const CacheMemory& cache;
  int layer;  // of its layout
  int heads;
  float scale;
  int window = 0;                 // tokens; 0: none
  bool causal = true;             // false: queries see later tokens, too
  float soft_cap = 0;             // 0: none
  const float* slopes = nullptr;  // [heads]: ALiBi
  const float* sinks = nullptr;   // [heads]
};

// Cuts the spans into tiles and runs them. Allocates its tile list and its memory for splits once, not in each step.
class AttentionOp {
 public:
  struct Limits {
    int max_rows, max_positions;  // of a step, of a sequence
    int tiles_per_row;            // the most of any layer: tiles_per_row()
    int value_dim;                // the largest
  };
  static int tiles_per_row(int heads, int kv_heads);
  AttentionOp(const Team& team, const Limits& limits);
  ~AttentionOp();
  AttentionOp(const AttentionOp&) = delete;
  AttentionOp& operator=(const AttentionOp&) = delete;
  void run(const Compute& compute, const AttentionSpec& spec, std::span<const AttentionSpan> spans);
  // What it comes down to, for any memory of a layer.
  void run_tiles(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans);

  // What the constructor allocates: the tile list and the splits' results.
  static size_t memory_bytes(int threads, const Limits& limits);

 private:
  size_t tile_floats_;  // of one tile's partial results
  int most_partials_;
  int split_below_;  // below this number of tiles, they are cut into splits
  std::vector<AttentionTile> tiles_;
  LargeBuffer partials_;  // [most_partials_][tile_floats_]
};

}  // namespace quire
