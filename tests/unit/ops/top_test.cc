#include "ops/top.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace quire {
namespace {

std::vector<Ranked> top_of(std::vector<float> x, int rows, int count) {
  Team team(2);
  const Compute compute{reference_kernels(), team, Activations::kF32};
  const int cols = static_cast<int>(x.size()) / rows;
  std::vector<Ranked> out(static_cast<size_t>(rows * count));
  top(compute, {x.data(), cols, static_cast<size_t>(cols)}, rows, count, out);
  return out;
}

TEST(Top, IsSortedWithTheFirstOfEqualNumbersFirst) {
  EXPECT_EQ(top_of({1, 5, 2, 5, -1, 5}, 1, 4), (std::vector<Ranked>{{1, 5}, {3, 5}, {5, 5}, {2, 2}}));
  EXPECT_EQ(top_of({1, 2, 4, 3}, 2, 1), (std::vector<Ranked>{{1, 2}, {0, 4}}));
  EXPECT_EQ(top_of({-INFINITY, 7}, 1, 2), (std::vector<Ranked>{{1, 7}, {0, -INFINITY}}));
}

TEST(Top, PutsNanLast) {
  std::vector<float> x(40, NAN);
  x[39] = -INFINITY;
  x[20] = 3;
  const auto found = top_of(x, 1, 3);
  EXPECT_EQ(found[0], (Ranked{20, 3}));
  EXPECT_EQ(found[1], (Ranked{39, -INFINITY}));
  EXPECT_EQ(found[2].column, 0);
}

TEST(Top, IsThatOfASort) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int rows = 1 + static_cast<int>(random() % 4), cols = 1 + static_cast<int>(random() % 200),
              count = 1 + static_cast<int>(random() % static_cast<unsigned>(cols));
    std::vector<float> x(static_cast<size_t>(rows * cols));
    for (float& v : x) v = static_cast<float>(random() % 50);
    std::vector<Ranked> wanted;
    for (int r = 0; r < rows; ++r) {
      std::vector<Ranked> row;
      for (int c = 0; c < cols; ++c) row.push_back({c, x[static_cast<size_t>(r * cols + c)]});
      std::ranges::stable_sort(row, std::greater<>(), &Ranked::value);
      wanted.insert(wanted.end(), row.begin(), row.begin() + count);
    }
    EXPECT_EQ(top_of(x, rows, count), wanted) << rows << " rows of " << cols << ", the best " << count;
  }
}

}  // namespace
}  // namespace quire
