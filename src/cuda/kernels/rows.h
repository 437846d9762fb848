// Operations that make each number of a row from numbers in the same place: what ops/backend.h says of them, with the bits
// of ops/cpu/rows.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/nonlinearity.h"
#include "cuda/kernels/row_access.h"
#include "cuda/kernels/unroll.h"

namespace quire::cuda {

// Grid: x: rows, y: cols / kCols, rounded up. A thread does four neighbouring columns: work.run(row, col, count, aligned)
// with `count` of them within the row, 1 or more.
template <class Work>
struct ForColumns {
  static constexpr const char* kName = Work::kName;
  static constexpr int kThreads = 128;
  static constexpr int kCols = 4 * kThreads;
  Work work;
  int cols;
  Flag aligned;  // all rows, and what belongs to columns, start at multiples of 16 bytes

  DEVICE void operator()() const {
    const int col = (block_y() * kThreads + thread()) * 4;
    if (col < cols) work.run(block_x(), col, cols - col, aligned);
  }
};

// to = scale * x, or to += scale * x
struct ScaleRowsBy {
  static constexpr const char* kName = "scale_rows";
  RowsAt<const float> x;
  RowsAt<float> to;
  float scale;
  Flag accumulate;

  DEVICE void run(int row, int col, int count, bool aligned) const {
    Four y = load_four(x.row(row) + col, count, aligned);
    const Four old = accumulate ? load_four(to.row(row) + col, count, aligned) : Four{};
    UNROLL
    for (int i = 0; i < 4; ++i) y.v[i] = accumulate ? fma_of(y.v[i], scale, old.v[i]) : y.v[i] * scale;
    store_four(to.row(row) + col, y, count, aligned);
  }
};

// to += scale * sigmoid(gate) * x. The gates stay as they are, because other blocks read them.
struct AddGatedRows {
  static constexpr const char* kName = "add_gated_rows";
  RowsAt<const float> x, gate;  // [rows, cols], [rows, 1]
  RowsAt<float> to;
  float scale;
  int unused = 0;

  DEVICE void run(int row, int col, int count, bool aligned) const {
    const float factor = sigmoid_lane(gate.row(row)[0]) * scale;
    const Four y = load_four(x.row(row) + col, count, aligned);
    Four sum = load_four(to.row(row) + col, count, aligned);
    UNROLL
    for (int i = 0; i < 4; ++i) sum.v[i] = fma_of(y.v[i], factor, sum.v[i]);
    store_four(to.row(row) + col, sum, count, aligned);
  }
};

// to = the sum of coefficients[i] * scale * x[i], in the order of i, or to += it. `to` is none of x.
struct CombineRows {
  static constexpr const char* kName = "combine_rows";
  static constexpr int kMostInputs = 8;
  RowsAt<const float> x[kMostInputs];
  RowsAt<const float> coefficients;  // [rows, inputs]
  RowsAt<float> to;
  int inputs;
  float scale;
  Flag accumulate;
  int unused = 0;

  DEVICE void run(int row, int col, int count, bool aligned) const {
    Four sum = accumulate ? load_four(to.row(row) + col, count, aligned) : Four{};
    UNROLL
    for (int i = 0; i < kMostInputs; ++i) {
      if (i == inputs) break;
      const float factor = coefficients.row(row)[i] * scale;
      const Four y = load_four(x[i].row(row) + col, count, aligned);
      UNROLL
      for (int j = 0; j < 4; ++j) sum.v[j] = accumulate || i > 0 ? fma_of(y.v[j], factor, sum.v[j]) : y.v[j] * factor;
    }
    store_four(to.row(row) + col, sum, count, aligned);
  }
};

// x = cap * tanh(x / cap)
struct SoftCapRows {
  static constexpr const char* kName = "soft_cap_rows";
  RowsAt<float> x;
  float cap;
  int unused = 0;

  DEVICE void run(int row, int col, int count, bool aligned) const {
    Four y = load_four(x.row(row) + col, count, aligned);
    UNROLL
    for (int i = 0; i < 4; ++i) y.v[i] = soft_cap_lane(y.v[i], cap);
    store_four(x.row(row) + col, y, count, aligned);
  }
};

// y *= f(gate), for any nonlinearity but kClampedSwiglu
struct GateRows {
  static constexpr const char* kName = "gate_rows";
  RowsAt<float> y;
  RowsAt<const float> gate;
  Nonlinearity f;
  uint8_t unused[7] = {};

  DEVICE void run(int row, int col, int count, bool aligned) const {
    Four product = load_four(y.row(row) + col, count, aligned);
    const Four gates = load_four(gate.row(row) + col, count, aligned);
    UNROLL
    for (int i = 0; i < 4; ++i) product.v[i] = nonlinear_of(f, gates.v[i]) * product.v[i];
    store_four(y.row(row) + col, product, count, aligned);
  }
};

// to[row] = x[rows[row]]; rows: nullptr: to[row] = x[row]
struct GatherRows {
  static constexpr const char* kName = "gather_rows";
  RowsAt<const float> x;
  Global<const int32_t> rows;
  RowsAt<float> to;

  DEVICE void run(int row, int col, int count, bool aligned) const {
    const int from = rows != nullptr ? rows[row] : row;
    store_four(to.row(row) + col, load_four(x.row(from) + col, count, aligned), count, aligned);
  }
};

// Columns of heads: HeadColumns (ops/rows.h). The columns of this kernel are heads * count; aligned: those of a thread lie
// in one head.
struct CopyHeads {
  static constexpr const char* kName = "copy_heads";
  RowsAt<const float> x;
  RowsAt<float> y;
  int count, from, from_stride, to, to_stride;
  int unused = 0;

  DEVICE void run(int row, int col, int left, bool aligned) const {
    const auto from_at = [&](int c) { return c / count * from_stride + from + c % count; };
    const auto to_at = [&](int c) { return c / count * to_stride + to + c % count; };
    if (aligned) {
      store_four(y.row(row) + to_at(col), load_four(x.row(row) + from_at(col), 4, true), 4, true);
      return;
    }
    for (int i = col; i < col + left && i < col + 4; ++i) y.row(row)[to_at(i)] = x.row(row)[from_at(i)];
  }
};

}  // namespace quire::cuda
