#include "ops/top.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace quire {
namespace {

std::vector<Ranked> top_of(const std::vector<float>& x, int count) {
  std::vector<Ranked> best(static_cast<size_t>(count));
  top(x, best);
  return best;
}

TEST(Top, IsSortedWithTheFirstOfEqualNumbersFirst) {
  EXPECT_EQ(top_of({1, 5, 2, 5, -1, 5}, 4), (std::vector<Ranked>{{1, 5}, {3, 5}, {5, 5}, {2, 2}}));
  EXPECT_EQ(top_of({-INFINITY, 7}, 2), (std::vector<Ranked>{{1, 7}, {0, -INFINITY}}));
}

TEST(Top, PutsNanLast) {
  std::vector<float> x(40, NAN);
  x[39] = -INFINITY;
  x[20] = 3;
  const auto found = top_of(x, 3);
  EXPECT_EQ(found[0], (Ranked{20, 3}));
  EXPECT_EQ(found[1], (Ranked{39, -INFINITY}));
  EXPECT_EQ(found[2].column, 0);
}

TEST(Top, IsThatOfASort) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const int cols = 1 + static_cast<int>(random() % 200),
              count = 1 + static_cast<int>(random() % static_cast<unsigned>(cols));
    std::vector<float> x(static_cast<size_t>(cols));
    for (float& v : x) v = static_cast<float>(random() % 50);
    std::vector<Ranked> wanted;
    for (int c = 0; c < cols; ++c) wanted.push_back({c, x[static_cast<size_t>(c)]});
    std::stable_sort(wanted.begin(), wanted.end(), [](const Ranked& a, const Ranked& b) { return a.value > b.value; });
    wanted.resize(static_cast<size_t>(count));
    EXPECT_EQ(top_of(x, count), wanted) << "the best " << count << " of " << cols;
  }
}

}  // namespace
}  // namespace quire
