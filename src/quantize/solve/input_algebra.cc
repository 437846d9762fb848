#include "quantize/solve/input_algebra.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstView = Eigen::Map<const RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;
using View = Eigen::Map<RowMajor, Eigen::Unaligned, Eigen::OuterStride<>>;

constexpr double kLeastDamping = 1e-6, kMostDamping = 10;

ConstView view_of(const FloatMatrix& m) { return {m.values.data(), m.rows, m.cols, Eigen::OuterStride<>(m.cols)}; }

// Rows and columns of a tile: large enough for Eigen's products, small enough for many threads.
constexpr int kTile = 256;

int tiles_of(Eigen::Index size) { return static_cast<int>((size + kTile - 1) / kTile); }

// In place, of the lower triangle: block columns from left to right, each with an update of all that follow. False: there is
// none.
bool factor_cholesky(Eigen::MatrixXd& a, Team& team) {
  const Eigen::Index n = a.rows();
  for (Eigen::Index k = 0; k < n; k += kTile) {
    const Eigen::Index width = std::min<Eigen::Index>(kTile, n - k), next = k + width;
    Eigen::Ref<Eigen::MatrixXd> diagonal = a.block(k, k, width, width);
    const Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> decomposed(diagonal);
    // A pivot of almost nothing passes as positive, but its inverse is noise.
    if (decomposed.info() != Eigen::Success || !(diagonal.diagonal().minCoeff() > 1e-7)) return false;
    const int below = tiles_of(n - next);
    const auto rows_of = [&](int tile) { return std::min<Eigen::Index>(kTile, n - next - tile * kTile); };
    const auto panel = [&](int tile) { return a.block(next + tile * kTile, k, rows_of(tile), width); };
    team.for_tiles(below, [&](int tile, int) {
      diagonal.triangularView<Eigen::Lower>().transpose().solveInPlace<Eigen::OnTheRight>(panel(tile));
    });
    std::vector<std::pair<int, int>> tiles;  // of the lower triangle that is left
    for (int col = 0; col < below; ++col) {
      for (int row = col; row < below; ++row) tiles.emplace_back(row, col);
    }
    team.for_tiles(static_cast<int>(tiles.size()), [&](int tile, int) {
      const auto [row, col] = tiles[static_cast<size_t>(tile)];
      a.block(next + row * kTile, next + col * kTile, rows_of(row), rows_of(col)).noalias() -=
          panel(row) * panel(col).transpose();
    });
  }
  return true;
}

// f(the first of some columns of the inverse of a lower triangular matrix, these columns from the diagonal on) for all of them.
template <class F>
void for_inverse_columns(const Eigen::MatrixXd& lower, Team& team, const F& f) {
  const Eigen::Index n = lower.rows();
  team.for_tiles(tiles_of(n), [&](int tile, int) {
    const Eigen::Index first = tile * kTile, count = std::min<Eigen::Index>(kTile, n - first), rows = n - first;
    Eigen::MatrixXd columns = Eigen::MatrixXd::Identity(rows, count);
    lower.bottomRightCorner(rows, rows).triangularView<Eigen::Lower>().solveInPlace(columns);
    f(first, columns);
  });
}

}  // namespace

InverseFactor factor_inverse(const InputStatistics& inputs, bool by_size, double damping, Team& team) {
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
    team.for_tiles(n, [&](int j, int) {
      for (int i = j; i < n; ++i) lower(i, j) = gram(input_at(j), input_at(i)) / mean;
      if (factor.dead[static_cast<size_t>(input_at(j))]) lower(j, j) = 1;
      lower(j, j) += factor.damping;
    });
    if (factor_cholesky(lower, team)) break;
  }
  factor.upper.assign(size * size, 0);
  for_inverse_columns(lower, team, [&](Eigen::Index first, const Eigen::MatrixXd& columns) {
    const Eigen::Index last = n - 1 - first;  // the row and column of U that the first column goes to
    for (Eigen::Index i = 0; i < columns.rows(); ++i) {
      float* const row = factor.upper.data() + static_cast<size_t>(last - i) * size;
      for (Eigen::Index j = 0; j < std::min(columns.cols(), i + 1); ++j)
        row[last - j] = static_cast<float>(columns(i, j));
    }
  });
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

double squared_output_error(const FloatMatrix& differences, std::span<const float> gram, Team& team) {
  constexpr int kRows = 64;
  std::vector<double> sums(static_cast<size_t>((differences.rows + kRows - 1) / kRows));
  team.for_tiles(static_cast<int>(sums.size()), [&](int tile, int) {
    FloatMatrix some(std::min(kRows, differences.rows - tile * kRows), differences.cols);
    std::copy_n(differences.row(tile * kRows).data(), some.values.size(), some.values.begin());
    sums[static_cast<size_t>(tile)] = squared_output_error(some, gram);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
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
