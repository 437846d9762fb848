// What a linear's inputs looked like over a calibration text: what methods of quantization choose scales and codes by.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// Of one matrix's inputs x, as they come to it: after norms and transforms, before rounding. All numbers are finite.
struct InputStatistics {
  int cols = 0;
  uint64_t rows = 0;               // of inputs; 0: none came, as for an expert that no row chose
  std::vector<double> squares;     // [cols]: sums of x^2
  std::vector<double> magnitudes;  // [cols]: sums of |x|
  std::vector<float> largest;      // [cols]: the largest |x|
  // [cols, cols]: sums of x_i x_j over rows that are scaled alike (quantize/gram_sum.h), both triangles; empty unless asked
  // for
  std::vector<float> gram;
  std::vector<float> sample;  // [at most `rows`, cols]: some of the rows, spread over the text; empty unless asked for
};

}  // namespace quire
