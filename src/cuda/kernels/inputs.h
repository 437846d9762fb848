// Rows of activations to the inputs of linears: norm, transform (ops/input_transform.h), rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/alphabet/alphabet.h"
#include "cuda/kernels/prepared_row.h"
#include "cuda/kernels/unroll.h"
#include "cuda/kernels/write_inputs.h"
#include "kernels/packed.h"
#include "kernels/types.h"

namespace quire::cuda {

// An InputTransform on the device.
struct TransformView {
  Global<const float> factors;        // [cols], or nullptr
  Global<const int32_t> order;        // [cols], or nullptr
  Global<const float> signs, matrix;  // of the rotation, or nullptr
  int32_t size = 0;                   // of the rotation; 0: none
  float scale = 1;                    // 1 / sqrt(size)
  int32_t signs_last = 0;
  int32_t unused = 0;
};

// Which rows are prepared for which transform.
struct GatheredRows {
  // Row i is row sources[i] of x, or nothing if that is negative or i is end[0] or more; nullptr: row i.
  Global<const int32_t> sources, end;
  // Row i is for part p, begins[p] <= i < begins[p + 1], which has transforms[p]; nullptr: all have PrepareInputs::transform.
  Global<const TransformView> transforms;
  Global<const int32_t> begins;
  int32_t parts = 0;
  int32_t in_place = 0;  // 1: row i is row i of x, for those that have a source
};

// Block (x, y): row x; columns beginning at y * x_step of it to row y * out_step + x of the result. The layout of a result is
// that of cuda/linear/inputs.h.
template <Activations kForm>
struct PrepareInputs {
  static constexpr const char* kName = "prepare_inputs";
  static constexpr int kThreads = 256;
  static constexpr int kReduced = kReducedFloats;  // of shared memory; then the row if it is rotated
  static constexpr int shared_bytes(bool rotated, bool by_matrix, int cols) {
    return (kReduced + (rotated ? cols * (by_matrix ? 2 : 1) : 0)) * static_cast<int>(sizeof(float));
  }

  Global<const float> x;
  int64_t x_stride;  // floats
  int32_t cols, x_step = 0, out_step = 0;
  int32_t out_stride;  // bytes
  Global<uint8_t> out;
  NormKind norm = NormKind::kNone;
  uint8_t unused[3] = {};  // instead of padding: launches are compared byte for byte
  float epsilon = 0;
  Global<const float> weight, bias;  // of the norm, or nullptr
  TransformView transform;
  GatheredRows gathered;
  float threshold;  // kInt8Row: the least magnitude of outliers
  int32_t unused_end = 0;

  struct Normalized {
    Global<const float> x, weight, bias;
    float mean, factor;
    DEVICE float operator()(int i) const {
      float value = (x[i] - mean) * factor;
      if (weight != nullptr) value *= weight[i];
      if (bias != nullptr) value += bias[i];
      return value;
    }
  };

  DEVICE float sum_squares(Global<const float> row, float mean) const {
    float squares = 0;
    for (int i = thread(); i < cols; i += kThreads) {
      const float d = row[i] - mean;
      squares = fma_of(d, d, squares);
    }
    return sum_over_block(squares);
  }
  DEVICE Normalized normalized(Global<const float> row) const {
    Normalized n{row, weight, bias, 0, 1};
    const auto count = static_cast<float>(cols);
    if (norm == NormKind::kRms) n.factor = 1.0f / sqrt_of(sum_squares(row, 0) / count + epsilon);
    if (norm == NormKind::kL2) n.factor = 1.0f / sqrt_of(sum_squares(row, 0) + epsilon);
    if (norm == NormKind::kLayer) {
      float sum = 0;
      for (int i = thread(); i < cols; i += kThreads) sum += row[i];
      n.mean = sum_over_block(sum) / count;
      n.factor = 1.0f / sqrt_of(sum_squares(row, n.mean) / count + epsilon);
    }
    return n;
  }

  // Rotates the row in shared memory; returns where the result is.
  DEVICE static Shared<float> rotate(const TransformView& t, Shared<float> row, int cols) {
    if (t.matrix != nullptr) {
      const auto to = row + cols;
      for (int k = thread(); k < cols; k += kThreads) {
        const int begin = k / t.size * t.size, j = k - begin;
        float sum = 0;
        for (int i = 0; i < t.size; ++i) sum += row[begin + i] * t.matrix[i * t.size + j];
        to[k] = sum * t.scale;
      }
      sync_block();
      return to;
    }
    for (int half = 1; half < t.size; half *= 2) {
      for (int p = thread(); p < cols / 2; p += kThreads) {
        const int i = p / half * 2 * half + p % half;
        const float a = row[i], b = row[i + half];
        row[i] = a + b;
        row[i + half] = a - b;
      }
      sync_block();
    }
    for (int k = thread(); k < cols; k += kThreads) {
      float value = row[k];
      if (t.signs != nullptr && t.signs_last != 0) value *= t.signs[k % t.size];
      row[k] = value * t.scale;
    }
    sync_block();
    return row;
  }

  // The row's inputs, value(i), as prepared numbers.
  template <class Value>
  DEVICE void write(const Value& value, Global<uint8_t> to) const {
    const int blocks = (cols + kBlockInputs - 1) / kBlockInputs, eights = 4 * blocks;
    RowMost most;
    if constexpr (kNeedsWholeRow<kForm>) {
      for (int i = thread(); i < cols; i += kThreads) see_input<kForm>(most, value(i), threshold);
      most = most_over_block(most);
    }
    for (int begin = warp() * 32; begin < eights; begin += kThreads) {  // whole warps
      const int eight = begin + lane();
      float inputs[8];
      UNROLL
      for (int k = 0; k < 8; ++k) inputs[k] = 8 * eight + k < cols ? value(8 * eight + k) : 0.0f;
      write_inputs<kForm>(inputs, eight, blocks, most, threshold, to);
    }
  }

  // The transform of row `row`.
  DEVICE TransformView transform_of(int row) const {
    if (gathered.transforms == nullptr) return transform;
    int first = 0, end = gathered.parts;  // the last part that begins at the row or before
    while (end - first > 1) {
      const int middle = (first + end) / 2;
      (gathered.begins[middle] <= row ? first : end) = middle;
    }
    return gathered.transforms[first];
  }

  DEVICE void operator()() const {
    const int row = block_x();
    int source = row;
    if (gathered.sources != nullptr) {
      source = row < gathered.end[0] ? gathered.sources[row] : -1;
      if (source < 0) return;
      if (gathered.in_place != 0) source = row;
    }
    const auto from = x + (source * x_stride + static_cast<ptrdiff_t>(block_y()) * x_step);
    const auto to = out + static_cast<ptrdiff_t>(block_y() * out_step + row) * out_stride;
    const Normalized value = normalized(from);
    const TransformView t = transform_of(row);
    if (t.size != 0) {
      const auto stored = shared<float>(kReduced * sizeof(float));
      for (int i = thread(); i < cols; i += kThreads) {
        float v = value(i);
        if (t.factors != nullptr) v *= t.factors[i];
        if (t.signs != nullptr && t.signs_last == 0) v *= t.signs[i % t.size];
        stored[i] = v;
      }
      sync_block();
      const auto rotated = rotate(t, stored, cols);
      write([&](int i) -> float { return rotated[i]; }, to);
    } else if (t.order != nullptr) {
      write(
          [&](int i) -> float {
            const int o = t.order[i];
            return t.factors != nullptr ? value(o) * t.factors[o] : value(o);
          },
          to);
    } else if (t.factors != nullptr) {
      write([&](int i) -> float { return value(i) * t.factors[i]; }, to);
    } else {
      write(value, to);
    }
  }
};

}  // namespace quire::cuda
