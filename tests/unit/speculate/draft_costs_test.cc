#include "speculate/draft_costs.h"

#include <gtest/gtest.h>

#include <random>

namespace quire {
namespace {

TEST(DraftCosts, LearnsWhatPassesAndRowsTake) {
  for (const double guess : {0.0, 0.0005, 0.05}) {
    DraftCosts costs(guess, 0);
    std::mt19937 random(3);
    std::uniform_real_distribution<double> noise(0.95, 1.05);
    for (int i = 0; i < 500; ++i) {
      const int passes = 1 + static_cast<int>(random() % 8), rows = passes * (1 + static_cast<int>(random() % 8));
      const bool outlier = i % 40 == 39;
      costs.learn({passes, rows}, (0.001 * passes + 0.0001 * rows) * noise(random) * (outlier ? 20 : 1));
    }
    EXPECT_NEAR(costs.seconds({1, 1}), 0.0011, 0.0003) << guess;
    EXPECT_NEAR(costs.seconds({8, 64}), 0.0144, 0.003) << guess;
  }
}

TEST(DraftCosts, StaysStableWhileAllDraftsAreAlike) {
  DraftCosts costs(0.001, 0.001);
  for (int i = 0; i < 20000; ++i) costs.learn({4, 4}, i % 2 ? 0.0021 : 0.0019);
  EXPECT_NEAR(costs.seconds({4, 4}), 0.002, 0.0002);
  EXPECT_LE(costs.seconds({1, 1}), 0.001);
}

}  // namespace
}  // namespace quire
