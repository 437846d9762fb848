#include "sampling/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace quire {
namespace {

TEST(ExactMath, AgreesWithTheCLibrary) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-60, 60);
  for (int i = 0; i < 100'000; ++i) {
    const double x = exponent(random), power = std::exp2(x);
    EXPECT_NEAR(exp2_exact(x) / power, 1, 1e-15) << x;
    EXPECT_NEAR(log2_exact(power) / std::log2(power), 1, 1e-15) << power;
    EXPECT_NEAR(power_exact(power, 0.3), std::pow(power, 0.3), 1e-14 * std::pow(power, 0.3)) << power;
  }
  for (const double near : {1 - 1e-16, 1 - 1e-9, 1 + 1e-15, 1 + 1e-9, 1 + 1e-3})
    EXPECT_NEAR(log2_exact(near), std::log2(near), 1e-15 * std::fabs(std::log2(near))) << near;
}

TEST(ExactMath, IsExactAtPowersOfTwo) {
  for (int n = -1000; n <= 1000; ++n) {
    EXPECT_EQ(log2_exact(std::ldexp(1, n)), n);
    EXPECT_EQ(exp2_exact(n), std::ldexp(1, n));
  }
  EXPECT_EQ(exp2_exact(5000), std::ldexp(1, 1000));
  EXPECT_EQ(exp2_exact(-5000), std::ldexp(1, -1000));
}

TEST(ExactMath, KnowsThePowersOfZero) {
  EXPECT_EQ(power_exact(0, 2), 0);
  EXPECT_EQ(power_exact(0, 0), 1);
  EXPECT_EQ(power_exact(1, 7), 1);
}

// The promise is about bits, on every machine.
TEST(ExactMath, HasTheSameBitsInEveryVersion) {
  EXPECT_EQ(log2_exact(3), 0x1.95c01a39fbd69p+0);
  EXPECT_EQ(exp2_exact(0.3), 0x1.3b2c47bff8329p+0);
  EXPECT_EQ(power_exact(0.7, 2.5), 0x1.a3cd72ed9866fp-2);
}

}  // namespace
}  // namespace quire
