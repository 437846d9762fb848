// The rotation of heads for caches of few bits (kernels/head_rotation.h), by one warp over shared memory. It is called turning
// here, since kernels also rotate heads by their positions.
#pragma once

#include <cstdint>

#include "cuda/alphabet/alphabet.h"

namespace quire::cuda {

// scale: rotation_scale() of the block.
struct HeadTurn {
  int dim;
  float scale;

  DEVICE int block() const { return dim & -dim; }
};

DEVICE void scale_turned(const HeadTurn& turn, Shared<float> x) {
  for (int i = lane(); i < turn.dim; i += 32) {
    const bool negative = (static_cast<uint32_t>(i + 1) * 2654435761u >> 31) != 0;
    x[i] = x[i] * (negative ? -turn.scale : turn.scale);
  }
  sync_warp();
}
DEVICE void add_turned_pairs(const HeadTurn& turn, Shared<float> x) {
  const int block = turn.block();
  for (int distance = 1; distance < block; distance *= 2) {
    for (int pair = lane(); pair < turn.dim / 2; pair += 32) {
      const int i = pair / distance * 2 * distance + pair % distance;
      const float a = x[i], b = x[i + distance];
      x[i] = a + b;
      x[i + distance] = a - b;
    }
    sync_warp();
  }
}

// rotate_head() and rotate_head_back() of x [dim], which the whole warp has written; with the same bits. The warp sees the result.
DEVICE void turn_head(const HeadTurn& turn, Shared<float> x) {
  if (turn.block() == 1) return;
  scale_turned(turn, x);
  add_turned_pairs(turn, x);
}
DEVICE void turn_head_back(const HeadTurn& turn, Shared<float> x) {
  if (turn.block() == 1) return;
  add_turned_pairs(turn, x);
  scale_turned(turn, x);
}

}  // namespace quire::cuda
