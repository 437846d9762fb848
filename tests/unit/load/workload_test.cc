#include "load/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"

namespace quire {
namespace {

class Workloads : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    std::ofstream(path_) << text;
    return path_.string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("trace_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::vector<int32_t> tokens(const Workload& workload, size_t i) { return prompt_tokens(workload, i, 1000, 1999); }

TEST_F(Workloads, HaveExactLengthsAndDistinctPrompts) {
  const Workload w = plan_workload({.input_tokens = 40, .output_tokens = 7, .requests = 50, .seed = 1});
  ASSERT_EQ(w.requests.size(), 50u);
  std::set<std::vector<int32_t>> beginnings;
  for (size_t i = 0; i < 50; ++i) {
    const auto prompt = tokens(w, i);
    EXPECT_EQ(prompt.size(), 40u);
    EXPECT_TRUE(std::ranges::all_of(prompt, [](int32_t t) { return t >= 1000 && t <= 1999; }));
    beginnings.insert({prompt.begin(), prompt.begin() + 8});
    EXPECT_EQ(w.requests[i].output_tokens, 7);
    EXPECT_EQ(std::ranges::count(prompt_words(w, i), ' '), 39);
  }
  EXPECT_EQ(beginnings.size(), 50u);
}

TEST_F(Workloads, DependOnTheSeedAlone) {
  const WorkloadOptions options{.rate = 10, .requests = 20, .seed = 5};
  WorkloadOptions other = options;
  other.seed = 6;
  const Workload a = plan_workload(options), b = plan_workload(options), c = plan_workload(other);
  EXPECT_EQ(tokens(a, 3), tokens(b, 3));
  EXPECT_NE(tokens(a, 3), tokens(c, 3));
  EXPECT_EQ(a.requests[19].at, b.requests[19].at);
  EXPECT_NE(a.requests[19].at, c.requests[19].at);
}

TEST_F(Workloads, ArriveAsAPoissonProcess) {
  const int n = 20000;
  const Workload w = plan_workload({.rate = 50, .requests = n, .seed = 2});
  EXPECT_EQ(w.requests[0].at, 0);
  EXPECT_NEAR(w.requests.back().at, n / 50.0, 4 * std::sqrt(n) / 50);  // 4 standard deviations
  int longer_than_mean = 0;
  for (int i = 1; i < n; ++i) longer_than_mean += w.requests[i].at - w.requests[i - 1].at > 1 / 50.0;
  EXPECT_NEAR(longer_than_mean / double(n), std::exp(-1), 0.02);
}

TEST_F(Workloads, ShareAPrefix) {
  const Workload w = plan_workload({.input_tokens = 100, .requests = 3, .shared_prefix = 60});
  const auto a = tokens(w, 0), b = tokens(w, 1);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 60, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 60, a.begin() + 70, b.begin() + 60));
  EXPECT_EQ(a.size(), 100u);
  EXPECT_THROW(plan_workload({.input_tokens = 10, .requests = 1, .shared_prefix = 11}), Error);
}

TEST_F(Workloads, FollowAzuresTraces) {
  const std::string trace = file(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,374,44\r\n2023-11-17 00:00:01.0000000,"
      "2000,109\n2023-11-17 00:00:01.5000000+00:00,5,600\n");
  const Workload w =
      plan_workload({.trace = trace, .time_scale = 0.5, .max_input_tokens = 1000, .max_output_tokens = 500});
  ASSERT_EQ(w.requests.size(), 3u);
  EXPECT_DOUBLE_EQ(w.requests[1].at, 0.75);
  EXPECT_DOUBLE_EQ(w.requests[2].at, 1.0);
  EXPECT_EQ(w.requests[0].input_tokens, 374);
  EXPECT_EQ(w.requests[1].input_tokens, 1000);
  EXPECT_EQ(w.requests[2].output_tokens, 500);
  EXPECT_EQ(w.shortened, 2);
  const Workload part = plan_workload({.trace = trace, .length_scale = 0.1, .requests = 1, .skip = 1});
  ASSERT_EQ(part.requests.size(), 1u);
  EXPECT_EQ(part.requests[0].at, 0);
  EXPECT_EQ(part.requests[0].input_tokens, 200);
  EXPECT_THROW(plan_workload({.trace = trace, .skip = 3}), Error);
  EXPECT_EQ(plan_workload({.trace = trace, .requests = 2, .skip = 1}).requests.size(), 2u);
  EXPECT_THROW(plan_workload({.trace = trace, .requests = 3, .skip = 1}), Error);
}

TEST_F(Workloads, FollowMooncakesTracesWithTheirPrefixes) {
  const std::string trace = file(
      R"({"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}
{"timestamp": 250, "input_length": 1500, "output_length": 6, "hash_ids": [7, 8, 10]}
)");
  const Workload w = plan_workload({.trace = trace});
  EXPECT_DOUBLE_EQ(w.requests[1].at, 0.25);
  const auto a = tokens(w, 0), b = tokens(w, 1);
  ASSERT_EQ(a.size(), 1100u);
  ASSERT_EQ(b.size(), 1500u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_NE(a[1024], b[1024]);
  const Workload half = plan_workload({.trace = trace, .length_scale = 0.5});
  const auto c = tokens(half, 0), d = tokens(half, 1);
  EXPECT_TRUE(std::equal(c.begin(), c.begin() + 512, d.begin()));
  EXPECT_FALSE(std::equal(c.begin() + 512, c.end(), d.begin() + 512));
}

TEST_F(Workloads, RefuseOtherFilesAndNameTheLine) {
  for (const char* wrong :
       {"", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "a,b,c\n", "{}\n", "{\"timestamp\": \"x\"}\n",
        "2023-13-16 23:59:59.5,1,1\n", "2023-11-16 23:59:59.5,-1,1\n", "2023-11-16 23:59:59.5,1\n",
        "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 2, \"hash_ids\": [\"x\"]}\n"}) {
    EXPECT_THROW(plan_workload({.trace = file(wrong)}), Error) << wrong;
  }
  try {
    plan_workload({.trace = file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5,1,1\nnonsense\n")});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(":3:"), std::string::npos) << e.what();
  }
  EXPECT_THROW(plan_workload({.trace = "/nonexistent"}), Error);
}

}  // namespace
}  // namespace quire
