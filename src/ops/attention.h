// Operations on the rows of a step: tile kernels run over a team. Results do not depend on the team or its size.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/team.h"
#include "kernels/kernels.h"

namespace quire {

struct Compute {
  const KernelSet& kernels;
  Team& team;
  Activations activations;
};

void quantize_rows(const Compute& compute, const QuantizeArgs& args, int rows);

// Independent linears over the same rows, as one loop.
void linears(const Compute& compute, std::span<const LinearArgs> list, int rows);

// Rows of one sequence in a step, at consecutive positions.
struct AttentionSpan {
  const int32_t* pages;  // the sequence's page table
  int row, rows;
  int position;  // of the first row
};

// Cuts the spans into tiles and runs them. Allocates its tile list and its memory for splits once, not in each step.
class AttentionOp {
 public:
  // For steps of at most max_rows rows and sequences of at most max_positions tokens.
  AttentionOp(const Team& team, int max_rows, int max_positions, int heads, int kv_heads, int head_dim);
  void run(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans);

  // What the constructor allocates: the tile list and the splits' results.
  static size_t memory_bytes(int threads, int max_rows, int max_positions, int heads, int kv_heads, int head_dim);

 private:
  size_t tile_floats_;  // of one tile's partial results
  int most_partials_;
  int split_below_;  // below this number of tiles, they are cut into splits
  std::vector<AttentionTile> tiles_;
  LargeBuffer partials_;  // [most_partials_][tile_floats_]
};

}  // namespace quire
