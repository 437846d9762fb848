// Operations on rows of activations, over a team. A row's result depends on that row alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "kernels/packed.h"
#include "kernels/types.h"
#include "ops/compute.h"
#include "quire/types.h"

namespace quire {

// Floats from row to row of `cols` activations: an odd number of cache lines. A linear writes two lines of each of 64
// rows together; with a stride of 4 KiB they would all map to one set of the L1 cache.
constexpr size_t row_stride(int cols) { return static_cast<size_t>(((cols + 15) / 16 | 1) * 16); }

// Activations [rows, cols] in float32; does not own its memory.
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

// x = scale * matrix[ids]. Rows with a negative id are left as they are.
void embed(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
           const Rows& x);

// x += scale * matrix[ids]. scratch [rows, x.cols]: overwritten.
void add_embeddings(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                    const Rows& scratch, const Rows& x);

// Where a result goes: to = scale * result, or to += scale * result.
struct Target {
  Rows to;
  float scale = 1;
  bool accumulate = false;
};

// The norm of x. x and the target may be the same.
void normalize(const Compute& compute, const Rows& x, const NormView& norm, const Target& target, int rows);
void normalize(const Compute& compute, const Rows& x, const HeadNorm& norm, const Target& target, int rows);

// to += scale * x.
void add(const Compute& compute, const Rows& x, float scale, const Rows& to, int rows);
// to += scale * sigmoid(gate) * x. gate: one number per row, overwritten.
void add_gated(const Compute& compute, const Rows& x, const Rows& gate, float scale, const Rows& to, int rows);
void scale(const Compute& compute, const Rows& x, float by, int rows);  // x *= by
void clear(const Compute& compute, const Rows& x, int rows);

// x = max(0, x - (mean + deviations * standard deviation)) of each row.
void cut_below(const Compute& compute, const Rows& x, float deviations, int rows);

// x *= the root mean square of `like` over its own, row by row.
void match_magnitude(const Compute& compute, const Rows& x, const Rows& like, int rows);

// to = sum over i of coefficients[i] * x[i], with a coefficient per row and input; to += if `accumulate`.
void combine(const Compute& compute, std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows);
void tanh(const Compute& compute, const Rows& x, int rows);
void copy(const Compute& compute, const Rows& x, const Rows& to, int rows);

// y *= f(gate).
void multiply_gate(const Compute& compute, const Rows& y, const Rows& gate, Nonlinearity f, int rows);

// to[i] = x[rows[i]].
void gather(const Compute& compute, const Rows& x, std::span<const int32_t> rows, const Rows& to);

// Columns [from, from + count) of each head of x to columns [to, to + count) of each head of y. Heads have from_stride
// and to_stride columns.
struct HeadColumns {
  int heads, count;
  int from, from_stride;
  int to, to_stride;
};
void copy_heads(const Compute& compute, const Rows& x, const HeadColumns& columns, const Rows& y, int rows);

// x = cap * tanh(x / cap).
void soft_cap(const Compute& compute, const Rows& x, float cap, int rows);

// f(begin, end) for tiles of rows.
template <class F>
void for_row_tiles(const Compute& compute, int rows, F f) {
  constexpr int kRowsPerTile = 8;
  compute.team.for_tiles((rows + kRowsPerTile - 1) / kRowsPerTile,
                         [&](int tile, int) { f(tile * kRowsPerTile, std::min(rows, (tile + 1) * kRowsPerTile)); });
}

}  // namespace quire
