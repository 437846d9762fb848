// A matrix of float32 numbers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace quire {

struct FloatMatrix {
  int rows = 0, cols = 0;
  std::vector<float> values;  // [rows, cols], row-major

  FloatMatrix() = default;
  FloatMatrix(int row_count, int col_count)
      : rows(row_count), cols(col_count), values(static_cast<size_t>(row_count) * static_cast<size_t>(col_count)) {}

  std::span<float> row(int i) { return std::span(values).subspan(first_of(i), static_cast<size_t>(cols)); }
  std::span<const float> row(int i) const { return std::span(values).subspan(first_of(i), static_cast<size_t>(cols)); }

 private:
  size_t first_of(int i) const { return static_cast<size_t>(i) * static_cast<size_t>(cols); }
};

}  // namespace quire
