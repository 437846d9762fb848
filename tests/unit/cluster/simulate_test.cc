// Clusters whose steps take round numbers of seconds, so that what requests meet can be told by hand.
#include "cluster/simulate.h"

#include <gtest/gtest.h>

#include "cluster/outcome.h"

namespace quire {
namespace {

// A step takes 1 ms, and 1 ms more for each row.
double step_of_rows(const StepLoad& load) { return 1e-3 * (1 + load.rows()); }

ClusterSpec small_cluster() {
  ClusterSpec spec;
  spec.cache_tokens = 64 * 16;
  spec.limits = {.max_rows = 512, .max_running = 8, .max_logits = 40, .tpot_target = 10, .ttft_target = 10};
  return spec;
}

Workload load_of(std::vector<PlannedRequest> requests, int shared_prefix = 0) {
  Workload workload;
  workload.requests = std::move(requests);
  workload.block_tokens = 64;
  workload.shared_prefix = shared_prefix;
  return workload;
}

SimulationResult simulated(const ClusterSpec& spec, const Workload& workload, double token_bytes = 0) {
  return simulate_cluster(spec, {.workload = workload, .step = step_of_rows, .token_bytes = token_bytes});
}

TEST(SimulatedCluster, ComputesARequestStepByStep) {
  const SimulationResult result = simulated(small_cluster(), load_of({{1, 100, 5, {}}}));
  ASSERT_EQ(result.requests.size(), 1u);
  EXPECT_DOUBLE_EQ(result.requests[0].arrived, 1);
  EXPECT_NEAR(result.requests[0].ttft(), 0.101, 1e-12);   // all 100 rows in a step
  EXPECT_NEAR(result.requests[0].tpot(5), 0.002, 1e-12);  // a row each
  EXPECT_NEAR(result.seconds, 1 + 0.101 + 4 * 0.002, 1e-12);
  EXPECT_EQ(result.steps, 5u);
  EXPECT_NEAR(result.busy[0], 0.109, 1e-12);
}

TEST(SimulatedCluster, BatchesWhatRunsAtATime) {
  const SimulationResult result = simulated(small_cluster(), load_of({{0, 32, 3, {}}, {0, 32, 3, {}}}));
  EXPECT_NEAR(result.requests[0].ttft(), 0.033, 1e-12);  // it began alone
  // Two steps with 15 rows of the second prompt, which fill two tiles with the token of the first answer; then its last two
  // rows, because the first answer has ended.
  EXPECT_NEAR(result.requests[1].ttft(), 0.033 + 2 * 0.017 + 0.003, 1e-12);
  EXPECT_EQ(result.steps, 6u);
}

TEST(SimulatedCluster, FindsThePrefixThatAnotherRequestLeft) {
  const Workload workload = load_of({{0, 200, 1, {7, 8}}, {10, 200, 1, {7, 9}}}, 32);
  const SimulationResult result = simulated(small_cluster(), workload);
  EXPECT_EQ(result.requests[0].cached_tokens, 0);
  EXPECT_EQ(result.requests[1].cached_tokens, 32 + 64);
  EXPECT_NEAR(result.requests[1].ttft(), 1e-3 * (1 + 200 - 96), 1e-12);
  ClusterSpec without = small_cluster();
  without.prefix_cache = false;
  EXPECT_EQ(simulated(without, workload).requests[1].cached_tokens, 0);
}

TEST(SimulatedCluster, EvictsTheOldestPrefix) {
  ClusterSpec spec = small_cluster();
  spec.cache_tokens = 20 * 16;  // two prompts of 10 pages, and not a third
  const auto prompt = [](double at, int64_t block) { return PlannedRequest{at, 150, 1, {block, block + 1}}; };
  const SimulationResult result = simulated(spec, load_of({prompt(0, 1), prompt(1, 11), prompt(2, 21), prompt(3, 1)}));
  EXPECT_LT(result.requests[3].cached_tokens, 128);
  const SimulationResult kept = simulated(spec, load_of({prompt(0, 1), prompt(1, 11), prompt(3, 1)}));
  EXPECT_EQ(kept.requests[2].cached_tokens, 128);
}

TEST(SimulatedCluster, PreemptsWhenPagesRunOut) {
  ClusterSpec spec = small_cluster();
  spec.cache_tokens = 16 * 16;
  std::vector<PlannedRequest> requests(6, PlannedRequest{0, 40, 100, {}});
  const SimulationResult result = simulated(spec, load_of(requests));
  EXPECT_GT(result.preemptions, 0u);
  for (const SimulatedRequest& r : result.requests) EXPECT_GT(r.finished, r.first_token);
}

TEST(SimulatedCluster, SpreadsRequestsOverReplicas) {
  ClusterSpec spec = small_cluster();
  const std::vector<PlannedRequest> requests(40, PlannedRequest{0, 64, 20, {}});
  const double one = simulated(spec, load_of(requests)).seconds;
  spec.replicas = 4;
  const SimulationResult four = simulated(spec, load_of(requests));
  EXPECT_LT(four.seconds, 0.4 * one);
  for (int replica = 0; replica < 4; ++replica)
    EXPECT_EQ(std::ranges::count(four.requests, replica, &SimulatedRequest::replica), 10);
}

// Steps of 101 ms, at half of the speed while both replicas compute.
TEST(SimulatedCluster, SharesMachines) {
  ClusterSpec spec = small_cluster();
  spec.replicas = 2;
  spec.at_once = 1;
  const SimulationResult together = simulated(spec, load_of({{0, 100, 1, {}}, {0, 100, 1, {}}}));
  EXPECT_NEAR(together.requests[0].ttft(), 0.202, 1e-12);
  EXPECT_NEAR(together.requests[1].ttft(), 0.202, 1e-12);
  EXPECT_NEAR(together.busy[0] + together.busy[1], 0.404, 1e-12);
  EXPECT_EQ(spec.machines(), 1);
  // The first is alone for 51 ms; then each does half of its work, until its other 50 ms are done.
  const SimulationResult one_later = simulated(spec, load_of({{0, 100, 1, {}}, {0.051, 100, 1, {}}}));
  EXPECT_NEAR(one_later.requests[0].ttft(), 0.051 + 0.1, 1e-12);
  EXPECT_NEAR(one_later.requests[1].ttft(), 0.1 + 0.051, 1e-12);
  // With room for one and a half, two have three quarters each.
  spec.at_once = 1.5;
  const SimulationResult some = simulated(spec, load_of({{0, 100, 1, {}}, {0, 100, 1, {}}}));
  EXPECT_NEAR(some.requests[1].ttft(), 0.101 / 0.75, 1e-12);
  EXPECT_EQ(spec.machines(), 2);
  spec.at_once = 2;
  EXPECT_NEAR(simulated(spec, load_of({{0, 100, 1, {}}, {0, 100, 1, {}}})).requests[1].ttft(), 0.101, 1e-12);
}

TEST(SimulatedCluster, RoutesToTheReplicaWithThePrefix) {
  ClusterSpec spec = small_cluster();
  spec.replicas = 4;
  std::vector<PlannedRequest> requests;
  for (int i = 0; i < 40; ++i) requests.push_back({1.0 * i, 150, 2, {2 * (i % 5), 2 * (i % 5) + 1}});
  const Workload workload = load_of(requests);
  const auto cached = [&](RoutingPolicy policy) {
    spec.policy = policy;
    const SimulationResult result = simulated(spec, workload);
    return outcome_of(result, workload, {}, 0).hit_rate;
  };
  EXPECT_NEAR(cached(RoutingPolicy::kPrefix), 35.0 / 40 * 128 / 150, 1e-9);  // each prefix is computed once
  EXPECT_LT(cached(RoutingPolicy::kRoundRobin), 0.6);
}

TEST(SimulatedCluster, HandsPromptsToDecoders) {
  ClusterSpec spec = small_cluster();
  spec.decoders = 1;
  spec.network = {.latency = 0.01, .bandwidth = 1e6};
  const SimulationResult result = simulated(spec, load_of({{0, 100, 5, {}}, {5, 20, 1, {}}}), 1e3);
  EXPECT_NEAR(result.requests[0].ttft(), 0.01 + 0.101 + 0.01, 1e-12);  // to the replica, and back
  // The pages take their time once; then each token has a step of one row.
  EXPECT_NEAR(result.requests[0].finished - result.requests[0].first_token, 0.01 + 0.1 + 4 * 0.002, 1e-12);
  EXPECT_NEAR(result.busy[1], 4 * 0.002, 1e-12);
  EXPECT_DOUBLE_EQ(result.requests[1].finished, result.requests[1].first_token);  // nothing is left to decode
}

TEST(SimulatedCluster, IsTheSameForTheSameSeed) {
  ClusterSpec spec = small_cluster();
  spec.replicas = 3;
  spec.policy = RoutingPolicy::kPowerOfTwo;
  const Workload workload =
      plan_workload({.input_tokens = 80, .output_tokens = 30, .rate = 50, .requests = 200, .seed = 4});
  const SimulationResult a = simulated(spec, workload), b = simulated(spec, workload);
  for (size_t i = 0; i < a.requests.size(); ++i) EXPECT_EQ(a.requests[i].finished, b.requests[i].finished);
}

TEST(SimulatedCluster, CountsLargeCachesInLargerPages) {
  ClusterSpec spec = small_cluster();
  EXPECT_EQ(simulated_page_tokens(spec), 16);
  spec.replicas = 1000;
  spec.cache_tokens = 1 << 20;
  EXPECT_GT(simulated_page_tokens(spec), 16);
}

TEST(ClusterOutcome, SaysWhatRequestsMet) {
  const Workload workload = load_of({{0, 100, 5, {}}, {0, 50, 1, {}}});
  SimulationResult result;
  result.requests = {{.arrived = 1, .first_token = 1.5, .finished = 2.5, .cached_tokens = 30},
                     {.arrived = 2, .first_token = 2.1, .finished = 2.1}};
  result.busy = {1, 0.5};
  result.seconds = 3;
  const ClusterOutcome o = outcome_of(result, workload, {.ttft = 0.2, .tpot = {}, .e2e = {}}, 7.2);
  EXPECT_DOUBLE_EQ(o.ttft.p50, 2.1 - 2);
  EXPECT_EQ(o.tpot.samples, 1u);
  EXPECT_DOUBLE_EQ(o.tpot.mean, 0.25);
  EXPECT_DOUBLE_EQ(o.output_rate, 3);
  EXPECT_DOUBLE_EQ(o.hit_rate, 0.2);
  EXPECT_DOUBLE_EQ(o.busy, 1.5 / (2 * 2));
  EXPECT_DOUBLE_EQ(o.good, 0.5);
  EXPECT_NEAR(*o.price_output, 7.2 / 3600 / 3 * 1e6, 1e-9);
}

}  // namespace
}  // namespace quire
