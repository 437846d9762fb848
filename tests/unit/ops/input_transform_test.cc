#include "ops/input_transform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace quire {
namespace {

using Matrix = std::vector<float>;  // [n][n]

Matrix sylvester(size_t n) {
  Matrix h(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) h[i * n + j] = std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f;
  }
  return h;
}

Matrix transposed(const Matrix& h, size_t n) {
  Matrix t(h.size());
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) t[j * n + i] = h[i * n + j];
  }
  return t;
}

// Paley's construction: its rows are orthogonal, but it is not Sylvester's with signs.
Matrix hadamard12() {
  constexpr size_t n = 12, q = 11;
  const auto is_square = [](size_t x) { return x == 1 || x == 3 || x == 4 || x == 5 || x == 9; };
  Matrix h(n * n, 1.0f);
  for (size_t i = 1; i < n; ++i) {
    h[i * n] = -1;
    for (size_t j = 1; j < n; ++j) h[i * n + j] = i == j ? 1.0f : is_square((j + q - i) % q) ? 1.0f : -1.0f;
  }
  return h;
}

std::vector<float> random_signs(size_t n, std::mt19937& random) {
  std::vector<float> signs(n);
  for (float& s : signs) s = random() % 2 == 0 ? 1.0f : -1.0f;
  signs[0] = -1;
  return signs;
}

std::vector<float> random_row(size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// Blocks of x times h / sqrt(n), in double.
std::vector<double> product(const std::vector<float>& x, const Matrix& h, size_t n) {
  std::vector<double> y(x.size());
  for (size_t k = 0; k < x.size(); ++k) {
    const size_t begin = k / n * n;
    for (size_t i = 0; i < n; ++i) y[k] += double{x[begin + i]} * h[i * n + k - begin];
    y[k] /= std::sqrt(static_cast<double>(n));
  }
  return y;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 1e-5) << i;
}

std::vector<float> transformed(const InputTransform& transform, const std::vector<float>& x) {
  std::vector<float> y(x.size(), 99.0f);
  transform_row(transform, x.data(), static_cast<int>(x.size()), y.data());
  return y;
}

TEST(InputTransform, RotatesBlocksByTheMatrixOrItsTranspose) {
  std::mt19937 random(1);
  struct Case {
    size_t size;
    Matrix h;
    bool is_dense;
  };
  std::vector<Case> cases = {{1, {1}, false}, {12, hadamard12(), true}};
  for (const size_t n : {2u, 16u, 64u, 256u}) {
    const Matrix plain = sylvester(n);
    const std::vector<float> signs = random_signs(n, random);
    Matrix rows = plain, columns = plain;
    for (size_t i = 0; i < n * n; ++i) rows[i] *= signs[i / n], columns[i] *= signs[i % n];
    cases.push_back({n, plain, false});
    cases.push_back({n, rows, false});
    cases.push_back({n, columns, false});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(c.size);
    const std::vector<float> x = random_row(3 * c.size, random);
    for (const bool inverse : {false, true}) {
      InputTransform transform;
      transform.rotation = rotation_of(c.h, static_cast<int>(c.size), inverse);
      EXPECT_EQ(!transform.rotation.matrix.empty(), c.is_dense);
      expect_near(transformed(transform, x), product(x, inverse ? transposed(c.h, c.size) : c.h, c.size));
    }
  }
}

TEST(InputTransform, IsUndoneByTheTransposedRotation) {
  std::mt19937 random(2);
  Matrix h = sylvester(64);
  const std::vector<float> signs = random_signs(64, random);
  for (size_t i = 0; i < h.size(); ++i) h[i] *= signs[i / 64];
  InputTransform there, back;
  there.rotation = rotation_of(h, 64, false);
  back.rotation = rotation_of(h, 64, true);
  const std::vector<float> x = random_row(128, random);
  const std::vector<float> again = transformed(back, transformed(there, x));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(again[i], x[i], 1e-5f);
}

TEST(InputTransform, KeepsSylvestersMatrixWithoutSigns) {
  const Rotation r = rotation_of(sylvester(8), 8, true);
  EXPECT_EQ(r.size, 8);
  EXPECT_TRUE(r.signs.empty());
  EXPECT_TRUE(r.matrix.empty());
}

TEST(InputTransform, MultipliesBeforeItRotates) {
  std::mt19937 random(3);
  InputTransform transform;
  transform.factors = random_row(32, random);
  transform.rotation = rotation_of(sylvester(16), 16, false);
  std::vector<float> x = random_row(32, random);
  const std::vector<float> y = transformed(transform, x);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= transform.factors[i];
  expect_near(y, product(x, sylvester(16), 16));
}

TEST(InputTransform, MultipliesInputsByTheirOwnFactorsWhateverTheOrder) {
  InputTransform transform;
  transform.factors = {2, 3, 5, 7};
  transform.order = {3, 1, 0, 2};
  EXPECT_EQ(transformed(transform, {1, 10, 100, 1000}), (std::vector<float>{7000, 30, 2, 500}));
  transform.factors.clear();
  EXPECT_EQ(transformed(transform, {1, 10, 100, 1000}), (std::vector<float>{1000, 10, 1, 100}));
}

}  // namespace
}  // namespace quire
