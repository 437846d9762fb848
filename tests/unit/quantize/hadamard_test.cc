#include "quantize/rotate/hadamard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace quire {
namespace {

TEST(PaleyMatrix, HasOrthogonalRows) {
  for (const int order : {4, 12, 20, 24, 28, 36, 44, 60, 76, 84, 104, 108, 140, 180}) {
    const std::vector<int8_t> h = paley_matrix(order);
    ASSERT_EQ(h.size(), static_cast<size_t>(order) * static_cast<size_t>(order)) << order;
    for (size_t i = 0; i < static_cast<size_t>(order); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        int dot = 0;
        for (size_t k = 0; k < static_cast<size_t>(order); ++k) {
          ASSERT_EQ(std::abs(h[i * static_cast<size_t>(order) + k]), 1);
          dot += h[i * static_cast<size_t>(order) + k] * h[j * static_cast<size_t>(order) + k];
        }
        ASSERT_EQ(dot, i == j ? order : 0) << order << ": rows " << i << ", " << j;
      }
    }
  }
}

TEST(PaleyMatrix, IsEmptyWhereNoPrimeGivesTheOrder) {
  for (const int order : {1, 2, 6, 16, 30, 52, 92, 100}) EXPECT_TRUE(paley_matrix(order).empty()) << order;
}

// Row i of the rotation.
std::vector<double> row_of(const RandomHadamard& rotation, int i) {
  std::vector<double> x(static_cast<size_t>(rotation.size())), scratch(x.size());
  x[static_cast<size_t>(i)] = 1;
  rotation.rotate(x, scratch);
  return x;
}

struct SizeCase {
  int size, block;
};
class Rotations : public ::testing::TestWithParam<SizeCase> {};

TEST_P(Rotations, AreOrthogonalAndMixAllNumbersOfABlockAlike) {
  const auto [size, block] = GetParam();
  const RandomHadamard rotation(size);
  ASSERT_EQ(rotation.size(), size);
  ASSERT_EQ(rotation.block(), block);
  const int step = std::max(1, size / 7);
  for (int i = 0; i < size; i += step) {
    const std::vector<double> a = row_of(rotation, i);
    for (int k = 0; k < size; ++k) {
      const double wanted = k / block == i / block ? 1 / std::sqrt(static_cast<double>(block)) : 0;
      ASSERT_NEAR(std::fabs(a[static_cast<size_t>(k)]), wanted, 1e-12) << i << ", " << k;
    }
    for (int j = 0; j < i; j += step) {
      const std::vector<double> b = row_of(rotation, j);
      double dot = 0;
      for (size_t k = 0; k < a.size(); ++k) dot += a[k] * b[k];
      ASSERT_NEAR(dot, 0, 1e-12) << i << ", " << j;
    }
  }
}

// The sizes of models, and some that have no Hadamard matrix here.
INSTANTIATE_TEST_SUITE_P(Sizes, Rotations,
                         ::testing::Values(SizeCase{1, 1}, SizeCase{2, 2}, SizeCase{64, 64}, SizeCase{96, 96},
                                           SizeCase{576, 576}, SizeCase{896, 896}, SizeCase{960, 960},
                                           SizeCase{2880, 2880}, SizeCase{100, 4}, SizeCase{7, 1}, SizeCase{18, 2}),
                         [](const auto& info) { return std::to_string(info.param.size); });

TEST(RandomHadamard, HasSignsThatAreNotAllTheSame) {
  int negative = 0;
  for (int i = 0; i < 64; ++i) negative += row_of(RandomHadamard(64), i)[0] < 0;
  EXPECT_GT(negative, 16);
  EXPECT_LT(negative, 48);
}

}  // namespace
}  // namespace quire
