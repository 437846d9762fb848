#include "cli/bench/serve_selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stop_token>
#include <thread>

#include "cli/bench/serve_scripted.h"
#include "load/run.h"

namespace quire {
namespace {

using namespace std::chrono_literals;
using Ending = ScriptedAnswer::Ending;

// How much later than the server wrote a token the tool may see it, on a machine that has time for both: loopback takes
// 0.1 ms.
constexpr double kSlack = 0.020;

// How late this machine wakes who sleeps, measured beside a run: what it keeps from us is not the tool's fault.
class WakeDelay {
 public:
  WakeDelay() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  // Seconds, the longest so far.
  double longest() const { return longest_; }

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

class Checks {
 public:
  void expect(bool holds, const std::string& what) {
    std::printf("%s %s\n", holds ? "ok    " : "FAILED", what.c_str());
    if (!holds) all_hold_ = false;
  }
  void equal(int64_t is, int64_t should, const std::string& what) {
    expect(is == should, fmt::format("{}: {}{}", what, is, is == should ? "" : fmt::format(", not {}", should)));
  }
  // Seconds.
  void between(double is, double low, double high, const std::string& what) {
    expect(low <= is && is <= high,
           fmt::format("{}: {:.1f} ms, in {:.1f} to {:.1f}", what, 1e3 * is, 1e3 * low, 1e3 * high));
  }
  bool all_hold() const { return all_hold_; }

 private:
  bool all_hold_ = true;
};

struct Load {
  int requests = 0, input = 64, output = 8, concurrency = 0;
  double rate = 0;
  CacheState declared = CacheState::kCold;
  int shared_prefix = 0;
  std::string slo = {};
};

LoadReport measure(const ScriptedServer& server, const Load& load) {
  WorkloadOptions workload;
  workload.requests = load.requests;
  workload.input_tokens = load.input;
  workload.output_tokens = load.output;
  workload.rate = load.rate;
  workload.shared_prefix = load.shared_prefix;
  LoadOptions options;
  options.url = server.url();
  options.concurrency = load.concurrency;
  options.warmup = 0;
  options.timeout = 20;
  const auto records = run_load(plan_workload(workload), options, [](int, int) {});
  return summarize(records, parse_service_level(load.slo), load.declared, load.shared_prefix);
}

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

void closed_loop(Checks& checks) {
  const WakeDelay delay;
  const ScriptedServer server([](int n) { return ScriptedAnswer{.first = n % 2 ? 30ms : 10ms, .gap = 5ms}; }, false);
  const LoadReport r = measure(server, {.requests = 40, .input = 100, .output = 20, .concurrency = 4});
  checks.equal(r.completed, 40, "closed loop: requests");
  checks.equal(r.input_tokens, 40 * 100, "closed loop: tokens in");
  checks.equal(r.output_tokens, 40 * 20, "closed loop: tokens out");
  checks.equal(r.pieces, 40 * 20, "closed loop: pieces");
  checks.expect(!r.cached_tokens, "closed loop: cached tokens are not known");
  const ServerSide side = server_side(server);
  const double slack = kSlack + 2 * delay.longest();
  const double mean_slack = 0.001 + slack / 19;  // a mean of 19 gaps moves with its ends alone
  checks.between(r.ttft.p50, side.ttft.p50, side.ttft.p50 + slack, "closed loop: TTFT p50 beside the server's own");
  checks.between(r.ttft.p95, side.ttft.p95, side.ttft.p95 + 2 * slack, "closed loop: TTFT p95");
  checks.between(r.itl.mean, side.itl.mean - mean_slack, side.itl.mean + mean_slack, "closed loop: ITL mean");
  checks.between(r.itl.p50, side.itl.p50 - slack / 10, side.itl.p50 + slack / 10, "closed loop: ITL p50");
  checks.between(r.tpot.mean, side.itl.mean - mean_slack, side.itl.mean + mean_slack, "closed loop: TPOT mean");
  checks.between(r.ttft.p50, 0.010, 1 + slack, "closed loop: TTFT p50 as scripted");
  checks.between(r.e2e.p50, 0.010 + 19 * 0.005, 1 + slack, "closed loop: end to end p50 as scripted");
  checks.between(r.seconds, 10 * (0.020 + 19 * 0.005), 10 + slack, "closed loop: the whole run");
}

// 100 requests a second to a server that manages 50: the k-th of n waits for k * 10 ms. A tool that waited for answers
// before it sends, or counted from when it got to send, would see 20 ms each.
void overload(Checks& checks) {
  const WakeDelay delay;
  const ScriptedServer server([](int) { return ScriptedAnswer{.first = 20ms}; }, true);
  const LoadReport r = measure(server, {.requests = 100, .output = 1, .rate = 100});
  checks.equal(r.completed, 100, "open loop, overloaded: requests");
  checks.between(r.seconds, 100 * 0.020, 10, "open loop, overloaded: the whole run");
  // Mean wait: half of (all the work - the last arrival), which the seed fixes to about a second.
  checks.between(r.ttft.mean, 0.3, 2, "open loop, overloaded: mean TTFT shows the queue");
  checks.between(r.ttft.max, 0.6, 4, "open loop, overloaded: the last one's TTFT");
  checks.between(r.late.p50, 0, kSlack + 2 * delay.longest(), "open loop, overloaded: sent at the intended times");
}

void failures(Checks& checks) {
  static constexpr Ending kEndings[] = {Ending::kWhole, Ending::kRefused, Ending::kCut, Ending::kError, Ending::kShort};
  const ScriptedServer server([](int n) { return ScriptedAnswer{.ending = kEndings[n % 5]}; }, false);
  const LoadReport r = measure(server, {.requests = 50, .concurrency = 1});
  checks.equal(r.completed, 10, "failures: completed");
  checks.equal(r.failed, 40, "failures: failed");
  const auto count = [&](const std::string& part) {
    int total = 0;
    for (const auto& [reason, n] : r.failures) total += reason.find(part) != std::string::npos ? n : 0;
    return total;
  };
  checks.equal(count("HTTP 503: scripted refusal"), 10, "failures: refused");
  checks.equal(count("connection lost"), 10, "failures: cut off");
  checks.equal(count("scripted error"), 10, "failures: errors in the stream");
  checks.equal(count("7 tokens instead of 8"), 10, "failures: short answers");
  checks.equal(r.output_tokens, 10 * 8, "failures: tokens of completed answers only");
  checks.expect(!r.passed(), "failures: the run has failed");
}

void kept_connections(Checks& checks) {
  const ScriptedServer server(
      [](int n) { return ScriptedAnswer{.ending = n % 3 == 2 ? Ending::kUnwilling : Ending::kWhole}; }, false);
  const LoadReport r = measure(server, {.requests = 30, .concurrency = 1});
  checks.equal(r.completed, 30, "connections that close between requests: completed");
}

void caches(Checks& checks) {
  const auto with_cached = [](int tokens) {
    return [tokens](int n) { return ScriptedAnswer{.cached_tokens = n == 3 ? tokens : 0}; };
  };
  const ScriptedServer cold(with_cached(0), false), mixed(with_cached(48), false);
  checks.expect(measure(cold, {.requests = 8, .concurrency = 1}).passed(), "cold run: accepted");
  const LoadReport r = measure(mixed, {.requests = 8, .concurrency = 1});
  checks.equal(r.cached_tokens.value_or(-1), 48, "one warm prompt in a cold run: its cached tokens");
  checks.expect(!r.passed() && r.cache_violation, "one warm prompt in a cold run: refused");
  const ScriptedServer warm([](int n) { return ScriptedAnswer{.cached_tokens = n == 3 ? 0 : 990}; }, false);
  checks.expect(
      !measure(warm,
               {.requests = 8, .input = 1024, .concurrency = 1, .declared = CacheState::kWarm, .shared_prefix = 1000})
           .passed(),
      "one cold prompt in a warm run: refused");
}

void goodput(Checks& checks) {
  const ScriptedServer server([](int n) { return ScriptedAnswer{.first = n < 4 ? 1500ms : 0ms}; }, false);
  const LoadReport r = measure(server, {.requests = 16, .concurrency = 4, .slo = "ttft=1200ms,e2e=60s"});
  checks.equal(r.good.value_or(-1), 12, "service level: good requests");
}

}  // namespace

bool load_selftest() {
  Checks checks;
  closed_loop(checks);
  overload(checks);
  failures(checks);
  kept_connections(checks);
  caches(checks);
  goodput(checks);
  return checks.all_hold();
}

}  // namespace quire
