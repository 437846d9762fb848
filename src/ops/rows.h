// Rows of activations, and what operations on them take.
#pragma once

#include <cstddef>

#include "kernels/types.h"

namespace quire {

// Floats from row to row of `cols` activations: an odd number of cache lines. A linear writes two lines of each of 64
// rows together; with a stride of 4 KiB they would all map to one set of the L1 cache.
constexpr size_t row_stride(int cols) { return static_cast<size_t>(((cols + 15) / 16 | 1) * 16); }

// Activations [rows, cols] in float32, in the memory of a backend, which it does not own.
struct Rows {
  float* data = nullptr;
  int cols = 0;
  size_t stride = 0;  // floats from row to row

  float* row(int r) const { return data + static_cast<ptrdiff_t>(r) * static_cast<ptrdiff_t>(stride); }
  Rows columns(int first, int count) const { return {data + first, count, stride}; }
  Rows from(int r) const { return {row(r), cols, stride}; }
};

// A norm and its weights; kNone: no norm.
struct NormView {
  NormKind kind = NormKind::kNone;
  float epsilon = 0;
  const float* weight = nullptr;  // nullptr: ones
  const float* bias = nullptr;    // nullptr: zeros
};

// A norm of runs of a row's elements, such as the heads of queries.
struct HeadNorm {
  NormView norm;
  int groups = 0;            // runs that are normalised on their own: the heads, or 1 for all together
  size_t weight_stride = 0;  // floats from a group's weights to the next group's; 0: they share them
};

// Where a result goes: to = scale * result, or to += scale * result.
struct Target {
  Rows to;
  float scale = 1;
  bool accumulate = false;
};

// Columns [from, from + count) of each head of x to columns [to, to + count) of each head of y. Heads have from_stride
// and to_stride columns.
struct HeadColumns {
  int heads, count;
  int from, from_stride;
  int to, to_stride;
};

}  // namespace quire
