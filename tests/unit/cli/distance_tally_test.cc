// Distances between the predictions of two models.
#include "cli/compare/distance_tally.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quire {
namespace {

using Logits = std::vector<float>;

// Logits with these probabilities.
Logits of(std::initializer_list<double> probabilities) {
  Logits logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(DistanceTally, IsEmptyWithoutTokens) {
  const DistanceSummary s = DistanceTally().summary();
  EXPECT_EQ(s.tokens, 0u);
  EXPECT_EQ(s.mean_kl.value, 0);
  EXPECT_EQ(s.perplexity.value, 0);
}

TEST(DistanceTally, ComputesTheTextbookNumbers) {
  DistanceTally tally;
  const Logits a = of({0.5, 0.25, 0.25}), b = of({0.25, 0.5, 0.25});
  tally.add(a, b, 0, 3);  // right to wrong
  tally.add(a, a, 1, 4);
  tally.add(b, a, 0, 5);  // wrong to right
  const DistanceSummary s = tally.summary();
  EXPECT_EQ(s.tokens, 3u);
  const double kl = 0.5 * std::log(2) + 0.25 * std::log(0.5);
  EXPECT_NEAR(s.mean_kl.value, 2 * kl / 3, 1e-7);
  // Of {kl, 0, kl}: the deviation of the sample over the root of 3.
  EXPECT_NEAR(s.mean_kl.error, kl * std::sqrt((2.0 / 3 - 4.0 / 9) / 2), 1e-7);
  EXPECT_NEAR(s.median_kl, kl, 1e-7);
  EXPECT_NEAR(s.max_kl, kl, 1e-7);
  EXPECT_NEAR(s.same_top.value, 1.0 / 3, 1e-12);
  EXPECT_NEAR(s.right_to_wrong, 1.0 / 3, 1e-12);
  EXPECT_NEAR(s.wrong_to_right, 1.0 / 3, 1e-12);
  // Losses: ln 2, ln 4, ln 4 and ln 4, ln 4, ln 2.
  EXPECT_NEAR(s.reference_perplexity.value, std::exp2(5.0 / 3), 1e-6);
  EXPECT_NEAR(s.perplexity.value, std::exp2(5.0 / 3), 1e-6);
  EXPECT_NEAR(s.perplexity_change.value, 0, 1e-6);
  // The differences are ln 2, 0 and -ln 2: mean 0, deviation ln 2 * sqrt(2 / 3).
  EXPECT_NEAR(s.perplexity_change.error, std::exp2(5.0 / 3) * std::log(2) * std::sqrt(2.0 / 3 / 2), 1e-6);
}

TEST(DistanceTally, PairedTokensMakeTheErrorOfTheChangeSmall) {
  DistanceTally tally;
  for (int i = 1; i <= 50; ++i) {  // losses vary a lot, their difference does not
    const double p = i / 60.0;
    tally.add(of({p, 1 - p}), of({p * 0.9, 1 - p * 0.9}), 0, 0);
  }
  const DistanceSummary s = tally.summary();
  EXPECT_NEAR(s.perplexity.value / s.reference_perplexity.value, 1 / 0.9, 1e-6);
  EXPECT_LT(s.perplexity_change.error, s.perplexity.error / 5);
}

TEST(DistanceTally, SelectsPositions) {
  DistanceTally tally;
  for (size_t position = 0; position < 10; ++position)
    tally.add(of({0.5, 0.5}),
              of({0.5 - 0.01 * static_cast<double>(position), 0.5 + 0.01 * static_cast<double>(position)}), kNoToken,
              position);
  EXPECT_EQ(tally.summary(2, 5).tokens, 3u);
  EXPECT_EQ(tally.summary(10).tokens, 0u);
  EXPECT_LT(tally.summary(0, 5).max_kl, tally.summary(5, 10).median_kl);
  EXPECT_EQ(tally.summary().perplexity.value, 0);  // no token follows
}

}  // namespace
}  // namespace quire
