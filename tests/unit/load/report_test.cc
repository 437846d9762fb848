#include "load/report.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"

namespace quire {
namespace {

RequestRecord record(double intended, double sent, std::vector<double> pieces) {
  RequestRecord r;
  r.intended = intended;
  r.sent = sent;
  r.finished = pieces.back();
  r.input_tokens = 10;
  r.output_tokens = static_cast<int>(pieces.size());
  r.pieces = std::move(pieces);
  return r;
}

TEST(Spread, UsesNearestRanks) {
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  std::swap(hundred[3], hundred[70]);
  const Spread s = spread_of(hundred);
  EXPECT_EQ(s.samples, 100u);
  EXPECT_EQ(s.p50, 50);
  EXPECT_EQ(s.p95, 95);
  EXPECT_EQ(s.p99, 99);
  EXPECT_EQ(s.max, 100);
  EXPECT_DOUBLE_EQ(s.mean, 50.5);
  EXPECT_EQ(spread_of({7}).p50, 7);
  EXPECT_EQ(spread_of({7}).p99, 7);
  EXPECT_EQ(spread_of({}).samples, 0u);
}

TEST(LoadReport, CountsLatencyFromTheIntendedTime) {
  // Sent 2 s late; the user waited nevertheless.
  const LoadReport r = summarize({record(1, 3, {4, 4.5, 5.5})}, {}, CacheState::kCold, 0);
  EXPECT_DOUBLE_EQ(r.ttft.p50, 3);
  EXPECT_DOUBLE_EQ(r.e2e.p50, 4.5);
  EXPECT_DOUBLE_EQ(r.late.p50, 2);
  EXPECT_DOUBLE_EQ(r.tpot.p50, 0.75);
  EXPECT_EQ(r.itl.samples, 2u);
  EXPECT_DOUBLE_EQ(r.itl.max, 1);
  EXPECT_DOUBLE_EQ(r.seconds, 4.5);
  EXPECT_FALSE(r.good);
}

TEST(LoadReport, CountsTokensThatArriveTogetherAsOnePiece) {
  RequestRecord r = record(0, 0, {1, 3});
  r.output_tokens = 5;  // in two pieces
  const LoadReport report = summarize({r}, {}, CacheState::kCold, 0);
  EXPECT_DOUBLE_EQ(report.tpot.p50, 0.5);
  EXPECT_DOUBLE_EQ(report.itl.p50, 2);
  EXPECT_EQ(report.pieces, 2);
  EXPECT_EQ(report.output_tokens, 5);
}

TEST(LoadReport, ExcludesFailuresFromLatenciesAndFails) {
  RequestRecord failed = record(0, 0, {100});
  failed.failure = "timed out";
  const LoadReport r = summarize({record(0, 0, {1}), failed, failed}, {}, CacheState::kCold, 0);
  EXPECT_EQ(r.completed, 1);
  EXPECT_EQ(r.failed, 2);
  EXPECT_EQ(r.failures, (std::map<std::string, int>{{"timed out", 2}}));
  EXPECT_EQ(r.ttft.samples, 1u);
  EXPECT_EQ(r.output_tokens, 1);
  EXPECT_FALSE(r.passed());
  EXPECT_NE(to_text(r).find("2 x timed out"), std::string::npos);
}

TEST(LoadReport, CountsRequestsThatMeetAllLimits) {
  const ServiceLevel level = parse_service_level("ttft=500ms,tpot=50ms,e2e=2s");
  const std::vector<RequestRecord> records = {
      record(0, 0, {0.4, 0.44}),  // good
      record(0, 0, {0.6, 0.61}),  // late first token
      record(0, 0, {0.4, 0.5}),   // slow tokens
      record(0, 0, {0.4}),        // good: a single token has no TPOT
  };
  EXPECT_EQ(summarize(records, level, CacheState::kCold, 0).good, 2);
  EXPECT_EQ(summarize(records, parse_service_level("e2e=450ms"), CacheState::kCold, 0).good, 2);
}

TEST(LoadReport, RefusesWarmPromptsInAColdRunAndViceVersa) {
  RequestRecord cold = record(0, 0, {1}), warm = record(0, 0, {1});
  cold.input_tokens = warm.input_tokens = cold.planned_input = warm.planned_input = 2100;
  cold.cached_tokens = 16;
  warm.cached_tokens = 1984;
  EXPECT_TRUE(summarize({cold, cold}, {}, CacheState::kCold, 0).passed());
  EXPECT_TRUE(summarize({warm, warm}, {}, CacheState::kWarm, 2000).passed());
  EXPECT_FALSE(summarize({cold, warm}, {}, CacheState::kCold, 0).passed());
  EXPECT_FALSE(summarize({cold, warm}, {}, CacheState::kWarm, 2000).passed());
  EXPECT_TRUE(summarize({cold, warm}, {}, CacheState::kAny, 0).passed());
  EXPECT_EQ(summarize({cold, warm}, {}, CacheState::kAny, 0).cached_tokens, 2000);
  warm.cached_tokens = 50;  // what a chat template adds to the planned prompt
  warm.planned_input = 2060;
  EXPECT_TRUE(summarize({cold, warm}, {}, CacheState::kCold, 0).passed());
  cold.cached_tokens.reset();
  EXPECT_FALSE(summarize({cold}, {}, CacheState::kCold, 0).cached_tokens);
}

TEST(LoadReport, CountsAnswersWithoutCachedTokens) {
  RequestRecord silent = record(0, 0, {1}), told = record(0, 0, {1});
  told.cached_tokens = 0;
  const LoadReport cold = summarize({silent, told, silent}, {}, CacheState::kCold, 0);
  EXPECT_EQ(to_json(cold)["cache_unverified"], 2);
  EXPECT_NE(to_text(cold).find("cache state not verifiable: 2 of 3"), std::string::npos);
  const LoadReport any = summarize({silent}, {}, CacheState::kAny, 0);
  EXPECT_EQ(to_json(any)["cache_unverified"], 0);
  EXPECT_EQ(to_text(any).find("not verifiable"), std::string::npos);
}

TEST(LoadReport, FitsInto80Columns) {
  RequestRecord slow = record(0, 100, {3e4, 4e4});
  slow.cached_tokens = 7;
  std::istringstream text(to_text(summarize({slow, slow}, {}, CacheState::kCold, 0)));
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(ServiceLevel, RefusesUnknownLimitsAndUnits) {
  EXPECT_FALSE(parse_service_level("").given());
  EXPECT_DOUBLE_EQ(*parse_service_level("e2e=1.5s").e2e, 1.5);
  for (const char* wrong : {"ttft", "ttft=", "ttft=5", "ttft=5min", "ttft=-5ms", "speed=5ms", "ttft=nanms"}) {
    EXPECT_THROW(parse_service_level(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace quire
