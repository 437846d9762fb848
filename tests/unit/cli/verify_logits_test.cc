#include "cli/logit_distance.h"

#include <gtest/gtest.h>

#include <limits>

namespace quire {
namespace {

TEST(WidestDifference, KeepsTheLargest) {
  EXPECT_EQ(widest_difference(0.5, 1.0f, 1.25f), 0.5);
  EXPECT_EQ(widest_difference(0.5, 1.0f, 2.0f), 1.0);
}

TEST(WidestDifference, IsInfiniteAfterANonFiniteValue) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [expected, got] : {std::pair{kNaN, 1.0f}, {1.0f, kNaN}, {kInfinity, 1.0f}, {kInfinity, kInfinity}}) {
    double widest = widest_difference(0, expected, got);
    EXPECT_EQ(widest, kInfinity);
    widest = widest_difference(widest, 1.0f, 1.0f);
    EXPECT_EQ(widest, kInfinity);
  }
}

}  // namespace
}  // namespace quire
