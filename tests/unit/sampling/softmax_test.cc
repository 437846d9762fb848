#include "sampling/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace quire {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<float> spread_logits(size_t count, float deviation) {
  std::mt19937 generator(5);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(generator);
  return logits;
}

TEST(ComputeWeights, IsCloseToTheTrueExponentials) {
  std::vector<float> logits;
  for (float x = 0; x > -100; x -= 0.0007f) logits.push_back(x);
  logits.push_back(-kInfinite);
  std::vector<float> weights(logits.size());
  compute_weights(logits, 0, 1, weights);
  EXPECT_EQ(weights.front(), 1.0f);
  EXPECT_EQ(weights.back(), 0.0f);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double exact = std::exp(static_cast<double>(logits[i]));
    ASSERT_NEAR(weights[i], exact, 2e-7 * exact + kWeightUnit / 2) << logits[i];
  }
}

TEST(FindPeak, ReturnsTheLowestIdOnATie) {
  for (const size_t size : {1, 2, 15, 255, 256, 257, 1000}) {
    for (size_t first = 0; first < size; first += 7) {
      std::vector<float> logits(size, -3.0f);
      logits[first] = logits[size - 1] = 2.0f;
      const Peak peak = find_peak(logits);
      EXPECT_EQ(peak.token, static_cast<TokenId>(first));
      EXPECT_EQ(peak.logit, 2.0f);
    }
  }
}

TEST(FindPeak, RefusesNanAndInfinityAnywhere) {
  for (const size_t size : {1, 255, 256, 600}) {
    for (const size_t at : {size_t{0}, size / 2, size - 1}) {
      for (const float bad : {std::nanf(""), kInfinite}) {
        std::vector<float> logits(size, 1.0f);
        logits[at] = bad;
        try {
          find_peak(logits);
          FAIL() << "not refused at " << at << " of " << size;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("the model produced"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("token " + std::to_string(at)), std::string::npos) << error.what();
        }
      }
    }
  }
}

TEST(FindPeak, AcceptsMinusInfinity) {
  std::vector<float> logits(300, -kInfinite);
  EXPECT_EQ(find_peak(logits).logit, -kInfinite);
  logits[299] = -1e30f;
  EXPECT_EQ(find_peak(logits).token, 299);
}

TEST(LogSumExp, IsCloseToTheTrueValue) {
  for (const size_t size : {1, 3, 16, 255, 256, 257, 5000}) {
    const std::vector<float> logits = spread_logits(size, 6);
    long double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<long double>(x));
    EXPECT_NEAR(log_sum_exp(logits, find_peak(logits).logit), static_cast<double>(std::log(sum)), 3e-7);
  }
}

TEST(Weights, AreTheProbabilitiesWithinOneUnit) {
  for (const float temperature : {0.3f, 1.0f, 2.5f}) {
    const std::vector<float> logits = spread_logits(1003, 8);
    const float peak = find_peak(logits).logit;
    std::vector<float> weights(logits.size());
    compute_weights(logits, peak, temperature, weights);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double exact = std::exp((static_cast<double>(logits[i]) - peak) / temperature);
      // The quotient in float is off by 2^-24 of itself, at most 24 where weights are not 0.
      ASSERT_NEAR(weights[i], exact, exact * 2e-6 + kWeightUnit / 2.0);
      const double units = weights[i] / static_cast<double>(kWeightUnit);
      ASSERT_EQ(units, std::floor(units));
    }
  }
}

TEST(Weights, HaveTheSameSumInAnyOrder) {
  const std::vector<float> logits = spread_logits(100001, 5);
  std::vector<float> weights(logits.size());
  compute_weights(logits, find_peak(logits).logit, 1.0f, weights);
  double forward = 0, backward = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    forward += weights[i];
    backward += weights[weights.size() - 1 - i];
  }
  std::vector<double> blocks;
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward, sum_blocks(weights, blocks));
}

TEST(Weights, WorkAtAnyTemperature) {
  const std::vector<float> logits = {-kInfinite, 1.0f, 1.0000001f, -3e38f, 3e38f};
  std::vector<float> weights(logits.size());
  for (const float temperature : {1e-45f, 1e-10f, 1.0f, 3e38f}) {
    compute_weights(logits, 3e38f, temperature, weights);
    EXPECT_EQ(weights[0], 0.0f);
    EXPECT_EQ(weights[4], 1.0f);
    for (const float w : weights) EXPECT_TRUE(w >= 0 && w <= 1);
  }
}

}  // namespace
}  // namespace quire
