// Sums of x_i x_j over rows of inputs, by the kernels that compute linears.
//
// Rows are scaled to a mean square of 1. Else the few tokens with massive activations (Sun et al., arXiv 2402.17762), whose
// squares are thousands of times those of others, would decide alone: errors of a token count by its own size, as the norms
// that follow see them. What that gains is in docs/quantization.md.
#pragma once

#include <span>
#include <vector>

#include "base/memory.h"
#include "ops/cpu/compute.h"
#include "ops/rows.h"

namespace quire {

class GramSum {
 public:
  // gram [x.cols, x.cols] += x^T x of the scaled rows, in float32: at least its upper triangle, and nothing below its diagonal blocks. Bits do
  // not depend on the threads.
  void add(const Compute& compute, const Rows& x, int rows, std::span<float> gram);
  // Copies the upper triangle of gram [cols, cols] to the lower one; an empty one stays so.
  static void mirror(std::span<float> gram, int cols);

 private:
  LargeBuffer packed_, transposed_, inputs_;  // reused
  std::vector<float> factors_;                // of the rows
};

}  // namespace quire
