// Linear algebra on what is known of a linear's inputs. The only file that uses Eigen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/team.h"
#include "quantize/input_statistics.h"
#include "quantize/solve/float_matrix.h"

namespace quire {

// The upper triangular U with U^T U = (H + damping)^-1, for H = gram / rows with rows and columns in some order: what
// methods with error feedback propagate errors by.
struct InverseFactor {
  int cols = 0;
  std::vector<int32_t> order;  // row and column i of U are of input order[i]
  std::vector<float> upper;    // [cols, cols], row-major; 0 below the diagonal
  std::vector<bool> dead;      // [cols], by input: it was always 0
  double damping = 0;          // what was added to the diagonal, as a share of its mean

  std::span<const float> row(int i) const {
    return std::span(upper).subspan(static_cast<size_t>(i) * static_cast<size_t>(cols), static_cast<size_t>(cols));
  }
};

// inputs: with a Gram matrix of at least one row. by_size: in the order of falling mean squares, not the model's. damping: the
// share to begin with, not negative; raised tenfold until the matrix has a Cholesky factor. Throws Error if it has none even
// at 10 times the mean: the Gram matrix is not one. The result does not depend on the threads.
InverseFactor factor_inverse(const InputStatistics& inputs, bool by_size, double damping, Team& team);

// The damping to begin with: the more rows of inputs, the less. And rows below which error feedback fits a text's accidents,
// and may lose more on others than rounding to nearest.
double usual_damping(const InputStatistics& inputs);
uint64_t rows_needed(const InputStatistics& inputs);

// to -= errors * factor[first_row ..][first_col ..], all row-major with the given strides. errors: [rows, inner]; factor:
// [inner, cols]; to: [rows, cols].
struct Block {
  float* data;
  int stride;
};
void subtract_product(int rows, int inner, int cols, const float* errors, const float* factor, int factor_stride,
                      Block to);

// sum over the rows d of `differences` of d^T gram d: the squared error of the outputs, over all rows of inputs that the
// Gram matrix is of. gram: [cols, cols].
double squared_output_error(const FloatMatrix& differences, std::span<const float> gram);
double squared_output_error(const FloatMatrix& differences, std::span<const float> gram, Team& team);

// a b^T: [a.rows, b.rows].
FloatMatrix multiply_transposed(const FloatMatrix& a, const FloatMatrix& b);

// The statistics of x / divisors, input by input. divisors: [cols], positive.
InputStatistics divided_inputs(const InputStatistics& inputs, std::span<const float> divisors);

}  // namespace quire
