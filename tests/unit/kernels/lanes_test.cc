// The functions of kernels/lanes.h compared with the C library's in double precision. rows_test.cc compares the vector
// kernels with them bit by bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "kernels/lanes.h"

namespace quire {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

TEST(Exp, IsWithinTwoUlpAndZeroBelow) {
  for (float x = -87.0f; x < 87.9f; x += 0.00317f) {
    const double exact = std::exp(double{x});
    ASSERT_NEAR(exp_lane(x), exact, exact * 1.2e-7) << x;
  }
  EXPECT_EQ(exp_lane(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp_lane(0.0f), 1.0f);
}

TEST(Weight, IsExpRoundedToBf16) {
  for (float x = -38.8f; x <= 0.0f; x += 0.00113f) {
    const double exact = std::exp(double{x});
    ASSERT_NEAR(weight_lane(x), exact, exact * (1.0 / 256 + 2e-5)) << x;
    ASSERT_EQ(bf16_to_f32(f32_to_bf16(weight_lane(x))), weight_lane(x)) << x;
    ASSERT_GE(weight_lane(x), kSmallestRounded);
  }
  EXPECT_EQ(weight_lane(0.0f), 1.0f);
  EXPECT_EQ(weight_lane(-38.9f), 0.0f);
  EXPECT_EQ(weight_lane(-std::numeric_limits<float>::infinity()), 0.0f);
}

// The distance from `exact` in units of the last place of `exact` as a float32.
double ulps(float value, double exact) {
  const auto rounded = std::abs(static_cast<float>(exact));
  return std::abs(value - exact) / (double{std::nextafter(rounded, kInfinite)} - double{rounded});
}

// Numbers of all magnitudes from 2^-30 to 100, both signs.
template <class Check>
void for_numbers(const Check& check) {
  for (float size = 0x1p-30f; size < 100; size *= 1.00037f) {
    check(size);
    check(-size);
  }
}

TEST(Tanh, IsWithinTwoUlp) {
  for_numbers([](float x) { ASSERT_LE(ulps(tanh_lane(x), std::tanh(double{x})), 2) << x; });
  EXPECT_EQ(tanh_lane(kInfinite), 1.0f);
  EXPECT_EQ(tanh_lane(-kInfinite), -1.0f);
  EXPECT_TRUE(std::isnan(tanh_lane(std::nanf(""))));
}

TEST(Erf, IsWithinTwoUlp) {
  for_numbers([](float x) { ASSERT_LE(ulps(erf_lane(x), std::erf(double{x})), 2) << x; });
  EXPECT_EQ(erf_lane(kInfinite), 1.0f);
  EXPECT_EQ(erf_lane(-kInfinite), -1.0f);
  EXPECT_TRUE(std::isnan(erf_lane(std::nanf(""))));
}

TEST(Softplus, IsWithinThreeUlpAndXAboveTwenty) {
  for_numbers([](float x) {
    if (x > -87) {
      ASSERT_LE(ulps(softplus_lane(x), std::log1p(std::exp(double{x}))), 3) << x;
    }
  });
  for (const float x : {20.0f, 21.5f, 1e30f, kInfinite}) EXPECT_EQ(softplus_lane(x), x);
  EXPECT_EQ(softplus_lane(-kInfinite), 0.0f);
  EXPECT_TRUE(std::isnan(softplus_lane(std::nanf(""))));
}

TEST(Sigmoid, IsWithinThreeUlpAndNanForNan) {
  for_numbers([](float x) {
    if (x > -87) {
      ASSERT_LE(ulps(sigmoid_lane(x), 1 / (1 + std::exp(double{-x}))), 3) << x;
    }
  });
  EXPECT_EQ(sigmoid_lane(kInfinite), 1.0f);
  EXPECT_LT(sigmoid_lane(-kInfinite), 1e-38f);
  EXPECT_TRUE(std::isnan(sigmoid_lane(std::nanf(""))));
}

// The error is that of 1 + erf or 1 + tanh, which cancels for negative numbers.
TEST(Nonlinearities, AreCloseToTheirFormulas) {
  for_numbers([](float number) {
    const double x = number, close = 2e-7 * std::abs(x);
    ASSERT_NEAR(nonlinear_lane(Nonlinearity::kSilu, number), x / (1 + std::exp(-x)), close) << x;
    ASSERT_NEAR(nonlinear_lane(Nonlinearity::kGelu, number), x / 2 * (1 + std::erf(x / std::sqrt(2.0))), close) << x;
    ASSERT_NEAR(nonlinear_lane(Nonlinearity::kGeluTanh, number),
                x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))), close)
        << x;
    ASSERT_EQ(nonlinear_lane(Nonlinearity::kRelu, number), std::max(0.0f, number));
    ASSERT_NEAR(nonlinear_lane(Nonlinearity::kRelu2, number), x > 0 ? x * x : 0, 1e-7 * x * x) << x;
    ASSERT_EQ(nonlinear_lane(Nonlinearity::kSigmoid, number), sigmoid_lane(number));
    ASSERT_EQ(nonlinear_lane(Nonlinearity::kNone, number), number);
    const double g = std::min(x, 7.0), u = std::clamp(3 - x, -7.0, 7.0);
    ASSERT_NEAR(gated_lane(Nonlinearity::kClampedSwiglu, number, 3 - number, 1.702f, 7.0f),
                (u + 1) * g / (1 + std::exp(-1.702 * g)), 1e-5 * std::abs(g))
        << x;
  });
  for (int f = 0; f < static_cast<int>(Nonlinearity::kClampedSwiglu); ++f) {
    EXPECT_TRUE(std::isnan(nonlinear_lane(static_cast<Nonlinearity>(f), std::nanf("")))) << f;
  }
  EXPECT_TRUE(std::isnan(gated_lane(Nonlinearity::kClampedSwiglu, std::nanf(""), 1.0f, 1.702f, 7.0f)));
  EXPECT_TRUE(std::isnan(gated_lane(Nonlinearity::kClampedSwiglu, 1.0f, std::nanf(""), 1.702f, 7.0f)));
}

}  // namespace
}  // namespace quire
