// Operations on a step's rows: the tile kernels run over a team. Results do not depend on the team or its size.
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

// Linears that do not depend on each other, as one loop.
void linears(const Compute& compute, std::span<const LinearArgs> list, int rows);

// Rows of one sequence in a step, consecutive positions, in its pages.
struct AttentionSpan {
  const int32_t* pages;
  int row, rows;
  int position;
};

// Cuts the spans into tiles and runs them. Owns the tile list and the memory for splits, so that a step does not
// allocate.
class AttentionOp {
 public:
  // For steps of at most max_rows rows and sequences of at most max_positions tokens.
  AttentionOp(const Team& team, int max_rows, int max_positions, int heads, int kv_heads, int head_dim);
  void run(const Compute& compute, const AttentionArgs& args, std::span<const AttentionSpan> spans);

  static size_t memory_bytes(int threads, int max_positions, int head_dim);  // of the splits' results

 private:
  size_t tile_floats_;  // of one tile's partial results
  int most_partials_;
  int split_below_;  // fewer tiles than this are cut into splits
  std::vector<AttentionTile> tiles_;
  LargeBuffer partials_;  // [most_partials_][tile_floats_]
};

}  // namespace quire
