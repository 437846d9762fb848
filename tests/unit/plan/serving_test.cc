#include "plan/serving.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/planned_model.h"
#include "plan/step_times.h"

namespace quire {
namespace {

// A step takes 10 ms, and 1 ms for each row of a prompt.
double seconds_of_step(const StepLoad& load) {
  double seconds = 0.010;
  for (const SpanLoad& span : load.spans) seconds += span.rows > 1 ? 0.001 * span.rows : 0;
  return seconds;
}

TEST(Serving, OneUserPrefillsAndThenDecodes) {
  const ServingTimes t = serving_times({.users = 1, .prompt = 100, .answer = 11, .chunk = 50}, seconds_of_step);
  EXPECT_DOUBLE_EQ(t.ttft, 2 * 0.060);
  EXPECT_DOUBLE_EQ(t.tpot, 0.010);
  EXPECT_DOUBLE_EQ(t.output_rate, 11 / (2 * 0.060 + 10 * 0.010));
  EXPECT_FALSE(t.prefill_bound);
}

// A step loop with the same rules: users take turns at prompts, evenly spread.
TEST(Serving, AgreesWithASimulatedLoop) {
  const ServingLoad load{.users = 4, .prompt = 100, .answer = 41, .chunk = 50};
  struct User {
    int wait, chunks, tokens;
  };
  std::vector<User> users;
  for (int u = 0; u < load.users; ++u) users.push_back({u * 10, 2, 0});
  double time = 0;
  int64_t tokens = 0;
  double begun = 0;
  for (int step = 0; step < 100'000; ++step) {
    if (step == 10'000) begun = time, tokens = 0;
    StepLoad now;
    for (User& user : users) {
      if (user.wait > 0) {
        --user.wait;
      } else if (user.chunks > 0) {
        if (now.spans.empty() || now.spans.back().rows == 1) {
          now.spans.push_back({1, 50, 0});
          if (--user.chunks == 0) ++user.tokens, ++tokens;
        }
      } else {
        now.spans.push_back({1, 1, 100});
        ++user.tokens, ++tokens;
      }
      if (user.tokens == load.answer) user = {0, 2, 0};
    }
    time += seconds_of_step(now);
  }
  const ServingTimes t = serving_times(load, seconds_of_step);
  EXPECT_NEAR(t.output_rate, static_cast<double>(tokens) / (time - begun), 0.05 * t.output_rate);
}

TEST(Serving, LeavesTheQueueToLittlesLaw) {
  const ServingLoad load{.users = 20, .prompt = 500, .answer = 5, .chunk = 100};
  const ServingTimes t = serving_times(load, seconds_of_step);
  EXPECT_TRUE(t.prefill_bound);
  EXPECT_NEAR((t.ttft + 4 * t.tpot) * t.output_rate / load.answer, load.users, 1e-9);
  EXPECT_GT(t.ttft, 10 * 5 * 0.110);  // most wait for most others
}

TEST(Serving, FindsTheMostUsersWithinBounds) {
  const ServingLoad load{.users = 1, .prompt = 100, .answer = 101, .chunk = 50};
  const StepSeconds grows = [](const StepLoad& step) { return 0.001 * step.rows(); };
  const int users = most_users(load, 1000, std::nullopt, 0.020, grows);
  ServingLoad at = load;
  at.users = users;
  EXPECT_LE(serving_times(at, grows).tpot, 0.020);
  at.users = users + 1;
  EXPECT_GT(serving_times(at, grows).tpot, 0.020);
  EXPECT_EQ(most_users(load, 3, std::nullopt, 0.020, grows), 3);
  EXPECT_EQ(most_users(load, 1000, 0.001, std::nullopt, grows), 0);
  EXPECT_EQ(most_users(load, 0, std::nullopt, std::nullopt, grows), 0);
}

TEST(Serving, IsNeverComputeBoundIfCachesOutweighProducts) {
  const PlannedModel model = plan_config("", parse_shape_config("layers=2,hidden=64,heads=4"), {}, {});
  const MachineRates rates{1e9, {1e11, 1e11, 1e11}};
  EXPECT_EQ(compute_bound_batch(model.work, rates, 4096), std::nullopt);
  const auto batch = compute_bound_batch(model.work, {1e9, {1e9, 1e9, 1e9}}, 1);
  ASSERT_TRUE(batch);
  const auto bound = [&](int sequences) {
    const Work work = total_work(step_work(model.work, decode_load(sequences, 0)));
    return multiplying_seconds(work, {1e9, {1e9, 1e9, 1e9}}) >= reading_seconds(work, {1e9, {}});
  };
  EXPECT_TRUE(bound(*batch));
  EXPECT_FALSE(*batch > 1 && bound(*batch - 1));
}

TEST(Serving, PricesAMillionTokens) { EXPECT_DOUBLE_EQ(price_per_million(3.6, 1000), 1); }

TEST(StepTimes, AreLinearBetweenKnots) {
  StepTimes times;
  times.knots = {{1, 1.0, 0.5}, {4, 2.5, 0.8}};
  EXPECT_DOUBLE_EQ(step_seconds(times, decode_load(1, 0)), 1.5);
  EXPECT_DOUBLE_EQ(step_seconds(times, {.spans = {{2, 1, 0}}, .logits = 0}), 1.5);
  EXPECT_DOUBLE_EQ(step_seconds(times, decode_load(8, 0)), 5 + 1.6);
}

TEST(StepTimes, GrowWithWhatAttentionReads) {
  const PlannedModel model = plan_config("", parse_shape_config("layers=2,hidden=64,heads=4"), {}, {});
  StepTimes times{.knots = {{1, 3, 0}}, .decode_one = 2, .decode_many = 5, .prefill = 7, .work = model.work};
  const double token_bytes = 2 * 2 * 64 * 2, token_products = 2 * 2 * 64;
  EXPECT_DOUBLE_EQ(step_seconds(times, decode_load(1, 0)), 3);
  EXPECT_DOUBLE_EQ(step_seconds(times, decode_load(1, 100)), 3 + 2 * 100 * token_bytes);
  EXPECT_DOUBLE_EQ(step_seconds(times, decode_load(3, 100)), 3 * 3 + 5 * 3 * 100 * token_bytes);
  EXPECT_DOUBLE_EQ(step_seconds(times, prefill_load(10, 100, false)), 10 * 3 + 7 * 10 * 100 * token_products);
}

}  // namespace
}  // namespace quire
