// The results of the experts of each row, weighted and added.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/group_routes.h"
#include "cuda/kernels/row_access.h"

namespace quire::cuda {

// target = or += the sum over the row's experts, in the order of their scores: y = fma(result, weight * scale, y). Block (x, y):
// columns of part x, row y. Block 0 adds what has been read to the total.
struct CombineExperts {
  static constexpr const char* kName = "combine_experts";
  static constexpr int kThreads = 256;

  RoutesAt routes;
  RowsAt<float> results;  // gathered rows
  RowsAt<float> target;
  Global<uint64_t> total;  // += routes.active * expert_bytes
  uint64_t expert_bytes;
  int32_t cols;
  float scale;
  int32_t accumulate;
  int32_t unused = 0;

  DEVICE void operator()() const {
    if (block_x() == 0 && block_y() == 0 && thread() == 0)
      total[0] = total[0] + static_cast<uint64_t>(routes.active[0]) * expert_bytes;
    const int col = block_x() * kThreads + thread();
    if (col >= cols) return;
    const auto to = target.row(block_y()) + col;
    float y = accumulate != 0 ? float(*to) : 0.0f;
    for (int i = 0; i < routes.used; ++i) {
      const int route = block_y() * routes.used + i;
      const float result = results.row(routes.positions[route])[col];
      y = fma_of(result, routes.weights[route] * scale, y);
    }
    *to = y;
  }
};

}  // namespace quire::cuda
