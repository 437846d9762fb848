// What a tap of the decoder would collect of some rows of inputs, for tests of quantizers.
#pragma once

#include <algorithm>
#include <cmath>

#include "quantize/input_statistics.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

// With the Gram matrix, and all rows as the sample.
inline InputStatistics input_statistics_of(const FloatMatrix& x) {
  const auto cols = static_cast<size_t>(x.cols);
  InputStatistics s;
  s.cols = x.cols;
  s.rows = static_cast<uint64_t>(x.rows);
  s.squares.resize(cols);
  s.magnitudes.resize(cols);
  s.largest.resize(cols);
  std::vector<double> gram(cols * cols);
  for (int r = 0; r < x.rows; ++r) {
    const auto row = x.row(r);
    for (size_t i = 0; i < cols; ++i) {
      const double value = row[i];
      s.squares[i] += value * value;
      s.magnitudes[i] += std::fabs(value);
      s.largest[i] = std::max(s.largest[i], std::fabs(row[i]));
      for (size_t j = 0; j < cols; ++j) gram[i * cols + j] += value * static_cast<double>(row[j]);
    }
  }
  s.gram.assign(gram.begin(), gram.end());
  s.sample = x.values;
  return s;
}

}  // namespace quire
