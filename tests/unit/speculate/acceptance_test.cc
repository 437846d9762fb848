#include "speculate/acceptance.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Acceptance, ExpectsMoreOfConfidentDrafts) {
  const AcceptanceModel model(1);
  for (int confidence = 1; confidence < kConfidences; ++confidence)
    EXPECT_GT(model.chances(0, confidence, nullptr)[0], model.chances(0, confidence - 1, nullptr)[0]);
}

TEST(Acceptance, LearnsTheChanceAtEachDepth) {
  AcceptanceModel model(2);
  RequestAcceptance request;
  // The first token is always right, the second half of the time, the third never.
  for (int i = 0; i < 300; ++i) model.learn(1, 2, 5, 1 + i % 2, request);
  const AcceptanceChances chances = model.chances(1, 2, &request);
  EXPECT_GT(chances[0], 0.95);
  EXPECT_NEAR(chances[1], 0.5, 0.1);
  EXPECT_LT(chances[2], 0.05);
  EXPECT_EQ(model.chances(0, 2, &request), AcceptanceModel(1).chances(0, 2, nullptr)) << "the other drafter";
}

TEST(Acceptance, StartsANewRequestWithTheMeanOfTheOthers) {
  AcceptanceModel model(1);
  for (int i = 0; i < 50; ++i) {
    RequestAcceptance request;
    for (int j = 0; j < 5; ++j) model.learn(0, 1, 1, 1, request);
  }
  const RequestAcceptance fresh;
  EXPECT_GT(model.chances(0, 1, &fresh)[0], 0.95);
  EXPECT_EQ(model.chances(0, 1, &fresh), model.chances(0, 1, nullptr));
}

TEST(Acceptance, FollowsARequestThatIsUnlikeTheOthers) {
  AcceptanceModel model(1);
  RequestAcceptance others, unlike;
  for (int i = 0; i < 300; ++i) model.learn(0, 1, 4, 4, others);
  for (int i = 0; i < 30; ++i) model.learn(0, 1, 4, 0, unlike);
  EXPECT_LT(model.chances(0, 1, &unlike)[0], 0.35);
  EXPECT_GT(model.chances(0, 1, &others)[0], 0.8);
}

TEST(Acceptance, ForgetsDepthsThatDraftsNoLongerReach) {
  AcceptanceModel model(1);
  RequestAcceptance request;
  for (int i = 0; i < 20; ++i) model.learn(0, 1, 3, 2, request);
  EXPECT_LT(model.chances(0, 1, &request)[2], 0.2);
  for (int i = 0; i < 600; ++i) model.learn(0, 1, 2, 2, request);
  EXPECT_GT(model.chances(0, 1, &request)[2], 0.8) << "expected like the depths before";
}

TEST(Acceptance, LearnsNothingFromNoDraft) {
  AcceptanceModel model(1);
  RequestAcceptance request;
  model.learn(0, 1, 2, 0, request);
  const AcceptanceChances before = model.chances(0, 1, &request);
  model.learn(0, 1, 0, 0, request);
  EXPECT_EQ(model.chances(0, 1, &request), before);
}

}  // namespace
}  // namespace quire
