#include "quantize/solve/input_algebra.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace quire {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstView = Eigen::Map<const RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;
using View = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;

constexpr double kLeastDamping = 1e-6, kMostDamping = 10;

ConstView view_of(const FloatMatrix& m) { return {m.values.data(), m.rows, m.cols, Eigen::OuterStride<>(m.cols)}; }

}  // namespace

InverseFactor factor_inverse(const InputStatistics& inputs, bool by_size, double damping) {
  const int n = inputs.cols;
  const auto size = static_cast<size_t>(n);
  assert(inputs.gram.size() == size * size && inputs.rows > 0);
  InverseFactor factor;
  factor.cols = n;
  factor.order.resize(size);
  std::iota(factor.order.begin(), factor.order.end(), 0);
  const auto gram = [&](int i, int j) {
    return static_cast<double>(inputs.gram[static_cast<size_t>(i) * size + static_cast<size_t>(j)]);
  };
  if (by_size) std::ranges::stable_sort(factor.order, std::greater<>(), [&](int i) { return gram(i, i); });
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    factor.dead.push_back(!(gram(i, i) > 0));
    sum += gram(i, i);
  }
  const double mean = sum > 0 ? sum / n : 1;
  // With the rows and columns of H reversed, its lower factor L gives U: H = R R^T for the upper R = reversed L, and
  // H^-1 = R^-T R^-1, so U = R^-1 = reversed L^-1. No inverse of H is needed.
  const auto input_at = [&](int reversed) { return factor.order[static_cast<size_t>(n - 1 - reversed)]; };
  Eigen::MatrixXd lower(n, n);
  for (factor.damping = damping;; factor.damping = std::max(kLeastDamping, factor.damping * 10)) {
    if (factor.damping > kMostDamping)
      throw invalid(
          "the inputs' Gram matrix has no Cholesky factor even with a damping of {} times its mean diagonal; "
          "its numbers are damaged",
          kMostDamping);
    for (int j = 0; j < n; ++j) {
      for (int i = j; i < n; ++i) lower(i, j) = gram(input_at(i), input_at(j)) / mean;
      if (factor.dead[static_cast<size_t>(input_at(j))]) lower(j, j) = 1;
      lower(j, j) += factor.damping;
    }
    Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> decomposed(lower);
    // A pivot of almost nothing passes as positive, but its inverse is noise.
    if (decomposed.info() == Eigen::Success && lower.diagonal().minCoeff() > 1e-7) break;
  }
  Eigen::MatrixXd inverse = Eigen::MatrixXd::Identity(n, n);
  lower.triangularView<Eigen::Lower>().solveInPlace(inverse);
  factor.upper.assign(size * size, 0);
  for (int i = 0; i < n; ++i) {
    for (int j = i; j < n; ++j)
      factor.upper[static_cast<size_t>(i) * size + static_cast<size_t>(j)] =
          static_cast<float>(inverse(n - 1 - i, n - 1 - j));
  }
  return factor;
}

// On layers of SmolLM2, a tenth is best for up to six rows of inputs for each input, and the paper's hundredth is as good for
// thirty (docs/quantization.md): the fewer rows, the farther is their Gram matrix from that of other texts.
double usual_damping(const InputStatistics& inputs) {
  constexpr double kLeast = 0.01, kMost = 0.1, kPerInput = 0.6;
  return std::clamp(kPerInput * inputs.cols / static_cast<double>(inputs.rows), kLeast, kMost);
}

uint64_t rows_needed(const InputStatistics& inputs) { return 3 * static_cast<uint64_t>(inputs.cols); }

void subtract_product(int rows, int inner, int cols, const float* errors, const float* factor, int factor_stride,
                      Block to) {
  const ConstView a(errors, rows, inner, Eigen::OuterStride<>(inner)),
      b(factor, inner, cols, Eigen::OuterStride<>(factor_stride));
  View(to.data, rows, cols, Eigen::OuterStride<>(to.stride)).noalias() -= a * b;
}

double squared_output_error(const FloatMatrix& differences, std::span<const float> gram) {
  const int n = differences.cols;
  assert(gram.size() == static_cast<size_t>(n) * static_cast<size_t>(n));
  const ConstView d = view_of(differences), g(gram.data(), n, n, Eigen::OuterStride<>(n));
  const RowMajor product = d * g;
  double sum = 0;
  for (Eigen::Index i = 0; i < d.rows(); ++i) sum += static_cast<double>(product.row(i).dot(d.row(i)));
  return sum;
}

FloatMatrix multiply_transposed(const FloatMatrix& a, const FloatMatrix& b) {
  assert(a.cols == b.cols);
  FloatMatrix product(a.rows, b.rows);
  View(product.values.data(), product.rows, product.cols, Eigen::OuterStride<>(product.cols)).noalias() =
      view_of(a) * view_of(b).transpose();
  return product;
}

InputStatistics divided_inputs(const InputStatistics& inputs, std::span<const float> divisors) {
  const size_t n = divisors.size();
  assert(n == static_cast<size_t>(inputs.cols));
  InputStatistics to = inputs;
  for (size_t i = 0; i < n; ++i) {
    const auto by = static_cast<double>(divisors[i]);
    to.squares[i] /= by * by;
    to.magnitudes[i] /= by;
    to.largest[i] /= divisors[i];
    for (size_t j = 0; j < n && !to.gram.empty(); ++j) to.gram[i * n + j] /= divisors[i] * divisors[j];
  }
  for (size_t i = 0; i < to.sample.size(); ++i) to.sample[i] /= divisors[i % n];
  return to;
}

}  // namespace quire
