#include "cli/bench/speculation_estimate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire {
namespace {

TEST(SpeculationEstimate, TokensOfAStepFollowLeviathan) {
  for (const double a : {0.1, 0.5, 0.9}) {
    for (const int k : {0, 1, 4, 8})
      EXPECT_NEAR(tokens_of_step(a, k), (1 - std::pow(a, k + 1)) / (1 - a), 1e-12) << a << " " << k;
  }
  EXPECT_EQ(tokens_of_step(0, 8), 1);
  EXPECT_EQ(tokens_of_step(1, 8), 9);
}

TEST(SpeculationEstimate, AcceptanceIsTheShareOfRightTokensAmongThoseCompared) {
  DrafterStats drafts;
  drafts.count(4, 4);  // 4 right
  drafts.count(4, 1);  // 1 right, then a wrong one; what follows it is not compared
  drafts.count(2, 0);  // a wrong one
  EXPECT_DOUBLE_EQ(token_acceptance(drafts), 5.0 / 7);
  EXPECT_DOUBLE_EQ(mean_depth(drafts), 10.0 / 3);
  EXPECT_EQ(drafts.complete, 1u);
  EXPECT_EQ(drafts.drafted[0], 3u);
  EXPECT_EQ(drafts.drafted[2], 2u);
  EXPECT_EQ(drafts.accepted[0], 2u);
  EXPECT_EQ(drafts.accepted[3], 1u);
  EXPECT_EQ(token_acceptance({}), 0);
  EXPECT_EQ(mean_depth({}), 0);
}

TEST(SpeculationEstimate, CostsAreLinearBetweenMeasuredRowsAndAfterTheLast) {
  const std::vector<RowCost> costs{{1, 0.010}, {2, 0.012}, {4, 0.020}};
  EXPECT_DOUBLE_EQ(seconds_at(costs, 1), 0.010);
  EXPECT_DOUBLE_EQ(seconds_at(costs, 2), 0.012);
  EXPECT_DOUBLE_EQ(seconds_at(costs, 3), 0.016);
  EXPECT_DOUBLE_EQ(seconds_at(costs, 8), 0.036);
  EXPECT_DOUBLE_EQ(seconds_at(std::vector<RowCost>{{1, 0.01}}, 9), 0.01);
}

// 50 tokens a second, one a step.
DecodeCounts plain_run() {
  DecodeCounts off;
  off.seconds = 2;
  off.tokens = off.sequences = off.steps = 100;
  off.steps_by_rows[1] = 100;
  return off;
}

TEST(SpeculationEstimate, ExpectsWhatDraftsOfOneDepthGive) {
  DecodeCounts on;
  for (int i = 0; i < 30; ++i) on.drafts.count(2, i % 3);  // 0, 1, 2: a is 30 / 50
  on.sequences = on.steps = on.verify_steps = 30;
  on.tokens = 60;
  on.steps_by_rows[3] = 30;
  on.drafts.seconds = 0.1;
  // Twice as long for three rows; the machine was twice as fast when the costs were measured.
  const std::vector<RowCost> costs{{1, 0.01}, {3, 0.02}};
  const SpeculationEstimate e = estimate(plain_run(), on, costs);
  EXPECT_DOUBLE_EQ(e.acceptance, 0.6);
  EXPECT_DOUBLE_EQ(e.depth, 2);
  EXPECT_DOUBLE_EQ(e.tokens_per_step, 1 + 0.6 + 0.36);
  const double seconds = 30 * 0.04 + 0.1;
  EXPECT_NEAR(e.tokens_per_second, 30 * 1.96 / seconds, 1e-9);
  EXPECT_NEAR(e.tokens_per_second_by_depth, 60 / seconds, 1e-9);
}

TEST(SpeculationEstimate, CountsStepsWithoutDraftsAsOneTokenEach) {
  DecodeCounts on;
  for (int i = 0; i < 10; ++i) on.drafts.count(1, 1);
  on.sequences = on.steps = 40;
  on.tokens = 50;
  on.steps_by_rows[1] = 30;
  on.steps_by_rows[2] = 10;
  const std::vector<RowCost> costs{{1, 0.02}, {2, 0.03}};
  const SpeculationEstimate e = estimate(plain_run(), on, costs);
  EXPECT_DOUBLE_EQ(e.tokens_per_step, 1.25);
  EXPECT_NEAR(e.tokens_per_second, 50 / (30 * 0.02 + 10 * 0.03), 1e-9);
}

TEST(SpeculationEstimate, ExpectsNoGainWhereNothingIsDrafted) {
  const std::vector<RowCost> costs{{1, 0.5}};
  const SpeculationEstimate e = estimate(plain_run(), plain_run(), costs);
  EXPECT_EQ(e.acceptance, 0);
  EXPECT_DOUBLE_EQ(e.tokens_per_step, 1);
  EXPECT_DOUBLE_EQ(e.tokens_per_second, 50);
  EXPECT_EQ(estimate({}, {}, {}).tokens_per_second, 0);
}

TEST(DecodeCounts, LeaveOutStepsWithPrompts) {
  EngineStats before, after;
  before.prompt_seconds = 1;
  before.decode_tokens = 5;
  before.decode_steps_by_rows[1] = 5;
  before.drafters.resize(1);
  before.drafters[0].count(3, 1);
  after = before;
  after.prompt_seconds = 1.5;
  after.decode_tokens = 25;
  after.decode_sequences = 10;
  after.decode_steps_by_rows[1] = 9;
  after.drafters[0].count(2, 2);
  after.drafters[0].seconds = 0.25;
  const DecodeCounts c = DecodeCounts::between(before, after, 2);
  EXPECT_DOUBLE_EQ(c.seconds, 1.5);
  EXPECT_EQ(c.tokens, 20u);
  EXPECT_DOUBLE_EQ(c.tokens_per_step(), 2);
  EXPECT_EQ(c.steps_by_rows[1], 4u);
  EXPECT_EQ(c.drafts.drafted[0], 1u);
  EXPECT_EQ(c.drafts.drafted[2], 0u);
  EXPECT_EQ(c.drafts.complete, 1u);
  EXPECT_DOUBLE_EQ(c.drafts.seconds, 0.25);
  DecodeCounts twice = c;
  twice.add(c);
  EXPECT_EQ(twice.tokens, 40u);
  EXPECT_EQ(twice.drafts.accepted[1], 2u);
  EXPECT_DOUBLE_EQ(twice.tokens_per_second(), c.tokens_per_second());
}

}  // namespace
}  // namespace quire
