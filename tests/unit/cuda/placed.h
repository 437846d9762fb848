// Values on a device, and rows of activations, for tests of operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "cuda/device.h"
#include "kernels/packed.h"
#include "ops/rows.h"
#include "unit/cuda/device_values.h"
#include "unit/kernels/random_panels.h"

namespace quire::testing {

template <class T>
using Placed = cuda::OnDevice<T>;

// [rows, cols] with some stride, on a device.
class PlacedRows {
 public:
  PlacedRows(cuda::Device& device, int rows, int cols, size_t stride, std::span<const float> values)
      : rows_(rows), cols_(cols), stride_(stride), memory_(device, spread(values)) {}
  PlacedRows(cuda::Device& device, int rows, int cols, float fill)
      : PlacedRows(device, rows, cols, row_stride(cols),
                   std::vector<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols), fill)) {}
  PlacedRows(cuda::Device& device, int rows, int cols, std::span<const float> values)
      : PlacedRows(device, rows, cols, row_stride(cols), values) {}

  Rows rows() const { return {memory_.data(), cols_, stride_}; }
  std::vector<float> values() const {
    const std::vector<float> all = memory_.values();
    std::vector<float> values;
    for (size_t r = 0; r < static_cast<size_t>(rows_); ++r)
      values.insert(values.end(), all.begin() + static_cast<ptrdiff_t>(r * stride_),
                    all.begin() + static_cast<ptrdiff_t>(r * stride_) + cols_);
    return values;
  }

 private:
  std::vector<float> spread(std::span<const float> values) const {
    std::vector<float> all(static_cast<size_t>(rows_) * stride_);
    for (size_t r = 0; r < static_cast<size_t>(rows_); ++r)
      std::memcpy(&all[r * stride_], &values[r * static_cast<size_t>(cols_)],
                  sizeof(float) * static_cast<size_t>(cols_));
    return all;
  }

  int rows_, cols_;
  size_t stride_;
  Placed<float> memory_;
};

// A matrix on a device.
struct PlacedMatrix {
  Placed<std::byte> memory;
  PackedMatrix matrix;

  PlacedMatrix(cuda::Device& device, const PackedMatrix& host)
      : memory(device, std::span(host.data, host.bytes())), matrix(host) {
    matrix.data = memory.data();
  }
};

inline std::vector<float> random_rows(int rows, int cols, std::mt19937& random) {
  std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(cols));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);
  return x;
}

}  // namespace quire::testing
