#include "engine/step_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace quire {
namespace {

// Learns `steps` steps whose rows row_count() gives, with 5 % of noise.
template <class Seconds, class Rows>
void teach(StepCostModel& model, int steps, Seconds seconds, Rows row_count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  for (int i = 0; i < steps; ++i) {
    const StepWork work{row_count(random), 0};
    model.learn(work, seconds(work.rows) * noise(random));
  }
}

// Kernels with tiles of 1, 4, 8 and 16 rows.
double stairs(int rows) {
  const int tiles = (rows + 15) / 16;
  return rows == 1 ? 0.002 : rows <= 4 ? 0.0023 : rows <= 8 ? 0.0034 : 0.001 * tiles + 0.004;
}

void expect_never_decreasing(const StepCosts& costs) {
  for (int rows = 0; rows < 2000; ++rows) ASSERT_LE(costs.seconds_at(rows), costs.seconds_at(rows + 1)) << rows;
}

TEST(StepCosts, LearnsTheDurationOfSteps) {
  StepCostModel model;
  std::mt19937 random(1);
  const StepCosts truth = StepCosts::line(0.002, 0.0003, 2e-8);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  for (int i = 0; i < 2000; ++i) {
    const int rows = i % 3 ? 1 + static_cast<int>(random() % 32) : 16 + static_cast<int>(random() % 500);
    const StepWork work{rows, int64_t{rows} * static_cast<int>(random() % 8000)};
    model.learn(work, truth.seconds(work) * noise(random) * (i % 50 == 0 ? 20 : 1));  // and outliers
    if (i % 100 == 0) expect_never_decreasing(model.costs());
  }
  for (const StepWork work : {StepWork{1, 1000}, StepWork{32, 32 * 4000}, StepWork{512, 512 * 256}})
    EXPECT_NEAR(model.costs().seconds(work), truth.seconds(work), 0.1 * truth.seconds(work)) << work.rows;
}

TEST(StepCosts, LearnsStairs) {
  StepCostModel model;
  teach(model, 1500, stairs, [](auto& random) { return 1 + static_cast<int>(random() % 8); });
  for (int rows = 1; rows <= 8; ++rows)
    EXPECT_NEAR(model.costs().seconds_at(rows), stairs(rows), 0.05 * stairs(rows)) << rows;
  expect_never_decreasing(model.costs());
}

TEST(StepCosts, GivesTheRowsThatFitIntoATime) {
  StepCosts stepped = StepCosts::line(0.001, 0.0001, 1e-8);
  for (size_t i = 9; i < stepped.table.size(); ++i) stepped.table[i] += 0.002;
  for (const StepCosts& costs : {StepCosts::line(0.002, 0.0003, 2e-8), StepCosts::line(0.01, 0, 1e-7), stepped}) {
    for (const int others : {0, 1, 7, 30, 900}) {
      for (const double seconds : {1e-5, 0.0009, 0.05, 0.7}) {
        const int rows = costs.rows_within(seconds, 3000, others);
        const auto more = [&](int count) {
          StepWork work{others, 0};
          work.add(count, 3000);
          return costs.seconds(work) - costs.seconds({others, 0});
        };
        EXPECT_LE(more(rows), seconds + 1e-12);
        EXPECT_GT(more(rows + 1), seconds - 1e-12);
      }
    }
  }
  EXPECT_EQ(StepCosts::line(0.01, 0, 0).rows_within(1e-6, 0), 1 << 20) << "rows cost nothing";
  EXPECT_EQ(stepped.rows_within(0, 0), 0);
}

TEST(StepCosts, ExpectsOfRowsNeverSeenWhatTheNeighboursTake) {
  StepCostModel model;
  teach(
      model, 50, [](int rows) { return 0.1 + 0.01 * rows; }, [](auto& random) { return random() % 2 ? 1 : 16; });
  EXPECT_NEAR(model.costs().seconds_at(8), 0.18, 0.02);
  EXPECT_NEAR(model.costs().seconds_at(3), 0.13, 0.02);
  EXPECT_GT(model.costs().seconds_at(64), 1.2 * model.costs().seconds_at(16)) << "not flat after the last one";
}

// A disturbed machine, or one that has computed little.
TEST(StepCosts, ExpectsMoreRowsToTakeLongerThoughFewTookAsLongAsMany) {
  StepCostModel model;
  model.learn({20, 0}, 0.001);
  for (int i = 0; i < 20; ++i) model.learn({1, 0}, 0.005);
  EXPECT_GT(model.costs().seconds_at(96), 2 * model.costs().seconds_at(20));
  expect_never_decreasing(model.costs());
}

TEST(StepCosts, FollowsAMachineThatBecomesSlower) {
  StepCostModel model;
  const auto one = [](auto&) { return 1; };
  teach(model, 500, stairs, one);
  teach(
      model, 150, [](int rows) { return 5 * stairs(rows); }, one);
  EXPECT_NEAR(model.costs().seconds_at(1), 5 * stairs(1), 0.6 * stairs(1));
  teach(model, 250, stairs, one);
  EXPECT_NEAR(model.costs().seconds_at(1), stairs(1), 0.1 * stairs(1));
}

TEST(StepCosts, IsNotMovedByRareSlowSteps) {
  StepCostModel model;
  std::mt19937 random(2);
  for (int i = 0; i < 1000; ++i) model.learn({1 + i % 4, 0}, stairs(1 + i % 4) * (random() % 20 == 0 ? 50 : 1));
  for (int rows = 1; rows <= 4; ++rows) EXPECT_NEAR(model.costs().seconds_at(rows), stairs(rows), 0.1 * stairs(rows));
}

TEST(StepCosts, TellsAttendingFromRows) {
  StepCostModel model;
  const StepCosts truth = StepCosts::line(0.002, 0.0002, 2e-6);
  // Answers that grow: the number of rows says nothing of what they attend to.
  for (int answer = 0; answer < 10; ++answer) {
    for (int tokens = 100; tokens < 1000; ++tokens) {
      const StepWork work{1 + answer % 3, tokens * int64_t{1 + answer % 3}};
      model.learn(work, truth.seconds(work));
    }
  }
  EXPECT_NEAR(model.costs().per_attended, 2e-6, 2e-7);
  EXPECT_NEAR(model.costs().seconds({2, 4000}), truth.seconds({2, 4000}), 0.1 * truth.seconds({2, 4000}));
}

}  // namespace
}  // namespace quire
