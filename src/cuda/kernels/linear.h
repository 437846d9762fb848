// What kernels of linears are given: matrices, and the rows that each is for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/products.h"
#include "cuda/kernels/weights.h"
#include "kernels/packed.h"

namespace quire::cuda {

// y = finish(x W^T), with `up` of the same format and shape: gated by W.
struct LinearMatrix {
  WeightShape w;
  Global<const uint8_t> data, up;  // panels; up: or nullptr
  Finish finish;
  Global<float> y;
  int32_t y_stride = 0;  // floats
  int32_t fours = 0;     // 1: four outputs of a row from a multiple of 4 on lie at a multiple of 16 bytes
};

// The matrices of an expert or of a head, which replace those of LinearMatrix.
struct PartMatrices {
  Global<const uint8_t> data, up;
  Global<const float> bias, up_bias;
  // PackedMatrix::factor of both, which multiplies sums and not scales: kernels know one WeightShape for all parts.
  float factor = 1, up_factor = 1;
};

// A launch for many parts, such as experts or heads: all use matrices[0], with addresses of their own.
struct LinearParts {
  Global<const PartMatrices> matrices;  // nullptr: one part, matrices of the launch
  int32_t count = 0;
  int32_t unused = 0;
  // Rows begins[p] .. begins[p] + rows[p] of x and y are those of part p, which may have none; then block_z() counts those
  // parts that have rows. nullptr: each part has all rows, beginning at row p * x_step of x, and column p * y_step of y.
  Global<const int32_t> begins, rows;
  int32_t x_step = 0, y_step = 0;
};

inline constexpr int kMatricesTogether = 3;  // queries, keys and values

struct LinearWork {
  LinearMatrix matrices[kMatricesTogether];  // of one kind of codes
  int32_t count = 0;
  int32_t rows = 0;
  PreparedRows x;
  int32_t gated = 0;  // 1: the matrices have `up`
  int32_t ahead = 0;  // Bf16Tiles: how many chunks of weights are on their way to the L2 cache
  LinearParts parts;
};

// What a block works on: a matrix, or one of a part.
struct LinearPart {
  Global<const uint8_t> data, up, x;  // x: row 0
  Global<float> y;
  Global<const PartMatrices> own;  // nullptr: the launch's matrix
  int rows;                        // 0: nothing to do
};

DEVICE int panels_of(const WeightShape& w) { return (w.rows + kPanel - 1) / kPanel; }

// The n-th part that has rows; -1: there are fewer. All lanes call it.
DEVICE int nth_with_rows(const LinearParts& parts, int n) {
  for (int begin = 0; begin < parts.count; begin += 32) {
    const int p = begin + lane();
    uint32_t some = ballot(p < parts.count && parts.rows[p] > 0);
    for (int bit = 0; some != 0; ++bit, some >>= 1) {
      if ((some & 1) != 0 && n-- == 0) return begin + bit;
    }
  }
  return -1;
}

// Of a launch without parts, not gated.
DEVICE LinearPart only_part(const LinearWork& work, const LinearMatrix& m) {
  return {m.data, nullptr, work.x.data, m.y, nullptr, work.rows};
}
DEVICE LinearPart find_part(const LinearWork& work, const LinearMatrix& m) {
  LinearPart part = only_part(work, m);
  part.up = m.up;
  const LinearParts& parts = work.parts;
  if (parts.matrices == nullptr) return part;
  const bool routed = parts.rows != nullptr;
  const int p = routed ? nth_with_rows(parts, block_z()) : block_z();
  if (p < 0) {
    part.rows = 0;
    return part;
  }
  part.own = parts.matrices + p;
  const PartMatrices own = *part.own;
  part.data = own.data, part.up = own.up;
  const auto x_row = static_cast<ptrdiff_t>(routed ? parts.begins[p] : p * parts.x_step);
  part.x += x_row * work.x.stride;
  part.y += routed ? x_row * m.y_stride : static_cast<ptrdiff_t>(p) * parts.y_step;
  if (routed) part.rows = parts.rows[p];
  return part;
}

// Finds the matrix that panel `panel` of all matrices together belongs to, and the panel's number in it.
DEVICE const LinearMatrix& find_matrix(const LinearWork& work, int& panel, int panels_together) {
  int k = 0;
  for (; k + 1 < work.count; ++k) {
    const int panels = (panels_of(work.matrices[k].w) + panels_together - 1) / panels_together * panels_together;
    if (panel < panels) break;
    panel -= panels;
  }
  return work.matrices[k];
}

// Finishes `most` outputs of a row of the part, at most 4, as far as there are so many. With four, output is a multiple of 4.
DEVICE void finish_outputs(const LinearMatrix& m, const LinearPart& part, int row, int output, int most,
                           float (&values)[4], float (&ups)[4]) {
  const int count = m.w.rows - output < most ? m.w.rows - output : most;
  if (count <= 0) return;
  Finish to = m.finish;
  if (part.own != nullptr) {
    const PartMatrices own = *part.own;
    to.bias = own.bias, to.up_bias = own.up_bias;
    UNROLL
    for (int k = 0; k < 4; ++k) values[k] *= own.factor, ups[k] *= own.up_factor;
  }
  finish(to, output, count, values, part.up != nullptr, ups,
         part.y + (static_cast<ptrdiff_t>(row) * m.y_stride + output), m.fours != 0);
}
DEVICE void finish_outputs(const LinearMatrix& m, const LinearPart& part, int row, int output, const Words<4>& values) {
  float v[4], ups[4] = {};
  UNROLL
  for (int k = 0; k < 4; ++k) v[k] = bits_float(values.w[k]);
  finish_outputs(m, part, row, output, 4, v, ups);
}

// The panels of a block that computes several: its panel p is panel first + p of W, or with `up` every second one is of `up`.
struct TilePanels {
  Global<const uint8_t> data, up;
  int first, count;  // count: of the matrix
  DEVICE int number(int p) const { return up != nullptr ? first + p / 2 : first + p; }
  DEVICE bool exists(int p) const { return number(p) < count; }
  DEVICE Global<const uint8_t> at(const WeightShape& w, int p) const {
    return (up != nullptr && p % 2 == 1 ? up : data) + static_cast<ptrdiff_t>(number(p)) * w.panel_bytes;
  }
};

// Finishes two outputs of a row, from output `first` of a panel on, for panels p and p + 1 of the block. p is even, so with `up`
// the second is what the first is multiplied by.
DEVICE void finish_two_panels(const LinearMatrix& m, const LinearPart& part, const TilePanels& panels, int p, int row,
                              int first, float (&values)[4], float (&others)[4]) {
  const int output = panels.number(p) * kPanel + first;
  const bool gated = part.up != nullptr;
  float none[4] = {}, further[4] = {};  // finish() may overwrite them
  finish_outputs(m, part, row, output, 2, values, gated ? others : none);
  if (!gated) finish_outputs(m, part, row, output + kPanel, 2, others, further);
}

}  // namespace quire::cuda
