// Operations on rows of activations, over a team: what ops/backend.h says of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/packed.h"
#include "ops/cpu/compute.h"
#include "ops/rope_table.h"
#include "ops/rows.h"

namespace quire {

void embed(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
           const Rows& x);
void add_embeddings(const Compute& compute, const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                    const Rows& scratch, const Rows& x);
void normalize(const Compute& compute, const Rows& x, const NormView& norm, const Target& target, int rows);
void normalize(const Compute& compute, const Rows& x, const HeadNorm& norm, const Target& target, int rows);
void add(const Compute& compute, const Rows& x, float scale, const Rows& to, int rows);
void add_gated(const Compute& compute, const Rows& x, const Rows& gate, float scale, const Rows& to, int rows);
void scale(const Compute& compute, const Rows& x, float by, int rows);
void clear(const Compute& compute, const Rows& x, int rows);  // x = 0
void cut_below(const Compute& compute, const Rows& x, float deviations, int rows);
void match_magnitude(const Compute& compute, const Rows& x, const Rows& like, int rows);
void combine(const Compute& compute, std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows);
void tanh(const Compute& compute, const Rows& x, int rows);
void soft_cap(const Compute& compute, const Rows& x, float cap, int rows);
void copy(const Compute& compute, const Rows& x, const Rows& to, int rows);
void gather(const Compute& compute, const Rows& x, std::span<const int32_t> rows, const Rows& to);
void copy_heads(const Compute& compute, const Rows& x, const HeadColumns& columns, const Rows& y, int rows);
void multiply_gate(const Compute& compute, const Rows& y, const Rows& gate, Nonlinearity f, int rows);
void rotations(const Compute& compute, std::span<const RotationSpan> spans, const Rows& to);

// f(begin, end) for tiles of rows.
template <class F>
void for_row_tiles(const Compute& compute, int rows, F f) {
  constexpr int kRowsPerTile = 8;
  compute.team.for_tiles((rows + kRowsPerTile - 1) / kRowsPerTile,
                         [&](int tile, int) { f(tile * kRowsPerTile, std::min(rows, (tile + 1) * kRowsPerTile)); });
}

}  // namespace quire
