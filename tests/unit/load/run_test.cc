// The load generator's measurements compared with those of scripted servers: counts exactly, times within bounds.
#include "load/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>

#include "load/report.h"
#include "unit/load/scripted_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;
using Ending = ScriptedAnswer::Ending;

// Seconds between the server's write of a token and the generator's time stamp that an idle machine never exceeds;
// loopback takes 0.0001.
constexpr double kSlack = 0.020;

// Measures, during a run, how late this machine wakes a sleeping thread: that delay is not the generator's fault.
class WakeDelay {
 public:
  WakeDelay() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  double longest() const { return longest_; }  // seconds

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto due = std::chrono::steady_clock::now() + 1ms;
      std::this_thread::sleep_until(due);
      const double late = std::chrono::duration<double>(std::chrono::steady_clock::now() - due).count();
      longest_ = std::max(longest_.load(), late);
    }
  }

  std::atomic<double> longest_ = 0;
  std::jthread thread_;
};

struct Load {
  int requests = 0, input = 64, output = 8, concurrency = 0;
  double rate = 0;
  CacheState declared = CacheState::kCold;
  int shared_prefix = 0;
  std::string slo = {};
};

LoadReport measure(std::vector<std::string> urls, const Load& load) {
  WorkloadOptions workload;
  workload.requests = load.requests;
  workload.input_tokens = load.input;
  workload.output_tokens = load.output;
  workload.rate = load.rate;
  workload.shared_prefix = load.shared_prefix;
  LoadOptions options;
  options.urls = std::move(urls);
  options.concurrency = load.concurrency;
  options.warmup = 0;
  options.timeout = 20;
  const auto records = run_load(plan_workload(workload), options, [](int, int) {});
  return summarize(records, parse_service_level(load.slo), load.declared, load.shared_prefix);
}

LoadReport measure(const ScriptedServer& server, const Load& load) { return measure(std::vector{server.url()}, load); }

struct ServerSide {
  Spread ttft, itl;
};

ServerSide server_side(const ScriptedServer& server) {
  const auto seconds = [](auto span) { return std::chrono::duration<double>(span).count(); };
  std::vector<double> ttft, itl;
  for (const ScriptedTimes& t : server.times()) {
    ttft.push_back(seconds(t.tokens.front() - t.received));
    for (size_t i = 1; i < t.tokens.size(); ++i) itl.push_back(seconds(t.tokens[i] - t.tokens[i - 1]));
  }
  return {spread_of(ttft), spread_of(itl)};
}

::testing::AssertionResult between(double value, double low, double high) {
  if (low <= value && value <= high) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format("{:.1f} ms is not in {:.1f} to {:.1f} ms", 1e3 * value, 1e3 * low,
                                                      1e3 * high);
}

TEST(RunLoad, ReportsWhatTheServerDidInAClosedLoop) {
  const WakeDelay delay;
  const ScriptedServer server([](int n) { return ScriptedAnswer{.first = n % 2 ? 30ms : 10ms, .gap = 5ms}; }, false);
  const LoadReport r = measure(server, {.requests = 40, .input = 100, .output = 20, .concurrency = 4});
  EXPECT_EQ(r.completed, 40);
  EXPECT_EQ(r.input_tokens, 40 * 100);
  EXPECT_EQ(r.output_tokens, 40 * 20);
  EXPECT_EQ(r.pieces, 40 * 20);
  EXPECT_FALSE(r.cached_tokens) << "the server did not report any";
  const ServerSide side = server_side(server);
  const double slack = kSlack + 2 * delay.longest();
  const double mean_slack = 0.001 + slack / 19;  // the mean of 19 gaps depends on their two ends alone
  EXPECT_TRUE(between(r.ttft.p50, side.ttft.p50, side.ttft.p50 + slack));
  EXPECT_TRUE(between(r.ttft.p95, side.ttft.p95, side.ttft.p95 + 2 * slack));
  EXPECT_TRUE(between(r.itl.mean, side.itl.mean - mean_slack, side.itl.mean + mean_slack));
  EXPECT_TRUE(between(r.itl.p50, side.itl.p50 - slack / 10, side.itl.p50 + slack / 10));
  EXPECT_TRUE(between(r.tpot.mean, side.itl.mean - mean_slack, side.itl.mean + mean_slack));
  EXPECT_TRUE(between(r.ttft.p50, 0.010, 1 + slack));
  EXPECT_TRUE(between(r.e2e.p50, 0.010 + 19 * 0.005, 1 + slack));
  EXPECT_TRUE(between(r.seconds, 10 * (0.020 + 19 * 0.005), 10 + slack));
}

// 100 requests per second to a server that manages 50: request k waits for k * 10 ms. A generator that waited for
// answers before sending, or counted from the actual sending, would report 20 ms for each.
TEST(RunLoad, ShowsTheQueueOfAnOverloadedServer) {
  const WakeDelay delay;
  const ScriptedServer server([](int) { return ScriptedAnswer{.first = 20ms}; }, true);
  const LoadReport r = measure(server, {.requests = 100, .output = 1, .rate = 100});
  EXPECT_EQ(r.completed, 100);
  EXPECT_TRUE(between(r.seconds, 100 * 0.020, 10));
  // The mean wait is half of (total work - last arrival); the seed puts the last arrival at about a second.
  EXPECT_TRUE(between(r.ttft.mean, 0.3, 2));
  EXPECT_TRUE(between(r.ttft.max, 0.6, 4));
  EXPECT_TRUE(between(r.late.p50, 0, kSlack + 2 * delay.longest())) << "requests are sent at the intended times";
}

TEST(RunLoad, LetsServersTakeTurns) {
  const auto quick = [](int) { return ScriptedAnswer{}; };
  const ScriptedServer one(quick, false), other(quick, false);
  const LoadReport r = measure({one.url(), other.url()}, {.requests = 21, .concurrency = 3});
  EXPECT_EQ(r.completed, 21);
  EXPECT_EQ(one.times().size(), 11u);
  EXPECT_EQ(other.times().size(), 10u);
}

TEST(RunLoad, CountsFailuresByReason) {
  static constexpr Ending kEndings[] = {Ending::kWhole, Ending::kRefused, Ending::kCut, Ending::kError, Ending::kShort};
  const ScriptedServer server([](int n) { return ScriptedAnswer{.ending = kEndings[n % 5]}; }, false);
  const LoadReport r = measure(server, {.requests = 50, .concurrency = 1});
  EXPECT_EQ(r.completed, 10);
  EXPECT_EQ(r.failed, 40);
  const auto count = [&](const std::string& part) {
    int total = 0;
    for (const auto& [reason, n] : r.failures) total += reason.find(part) != std::string::npos ? n : 0;
    return total;
  };
  EXPECT_EQ(count("HTTP 503: scripted refusal"), 10);
  EXPECT_EQ(count("connection lost"), 10);
  EXPECT_EQ(count("scripted error"), 10);
  EXPECT_EQ(count("7 tokens instead of 8"), 10);
  EXPECT_EQ(r.output_tokens, 10 * 8) << "only completed answers count";
  EXPECT_FALSE(r.passed());
}

TEST(RunLoad, ReplacesConnectionsThatTheServerClosed) {
  const ScriptedServer server(
      [](int n) { return ScriptedAnswer{.ending = n % 3 == 2 ? Ending::kCloseQuietly : Ending::kWhole}; }, false);
  EXPECT_EQ(measure(server, {.requests = 30, .concurrency = 1}).completed, 30);
}

TEST(RunLoad, RefusesACacheThatIsNotAsDeclared) {
  const auto with_cached = [](int tokens) {
    return [tokens](int n) { return ScriptedAnswer{.cached_tokens = n == 3 ? tokens : 0}; };
  };
  const ScriptedServer cold(with_cached(0), false), mixed(with_cached(48), false);
  EXPECT_TRUE(measure(cold, {.requests = 8, .concurrency = 1}).passed());
  const LoadReport r = measure(mixed, {.requests = 8, .concurrency = 1});
  EXPECT_EQ(r.cached_tokens.value_or(-1), 48);
  EXPECT_TRUE(!r.passed() && r.cache_violation);
  const ScriptedServer warm([](int n) { return ScriptedAnswer{.cached_tokens = n == 3 ? 0 : 990}; }, false);
  const Load warm_load{
      .requests = 8, .input = 1024, .concurrency = 1, .declared = CacheState::kWarm, .shared_prefix = 1000};
  EXPECT_FALSE(measure(warm, warm_load).passed()) << "one prompt was cold";
}

TEST(RunLoad, CountsRequestsWithinTheServiceLevel) {
  const ScriptedServer server([](int n) { return ScriptedAnswer{.first = n < 4 ? 1500ms : 0ms}; }, false);
  const LoadReport r = measure(server, {.requests = 16, .concurrency = 4, .slo = "ttft=1200ms,e2e=60s"});
  EXPECT_EQ(r.good.value_or(-1), 12);
}

}  // namespace
}  // namespace quire
