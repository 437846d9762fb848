// Routing on a device: the CPU's choices and weights, to the bit, and groups of rows in one order.
#include "cuda/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "cuda/device.h"
#include "device_memory.h"
#include "error_of.h"
#include "kernels/kernels.h"
#include "ops/cpu/experts.h"

namespace quire::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct RouteCase {
  std::string name;
  Routing routing;
  bool correction = false, scales = false;
};

std::vector<RouteCase> route_cases() {
  using Scores = Routing::Scores;
  return {
      {"softmax of 8", {.scores = Scores::kSoftmax, .experts = 8, .used = 2}},
      {"softmax of 60, not normalised",
       {.scores = Scores::kSoftmax, .experts = 60, .used = 4, .normalise = false, .scale = 2.5f}},
      {"sigmoid of 64 in groups",
       {.scores = Scores::kSigmoid,
        .experts = 64,
        .used = 6,
        .scale = 2.5f,
        .groups = 8,
        .groups_used = 3,
        .group_by_two = true},
       true},
      {"softmax of 130 in groups",
       {.scores = Scores::kSoftmax, .experts = 130, .used = 8, .groups = 5, .groups_used = 2}},
      {"softmax of 20 chosen", {.scores = Scores::kSoftmaxOfChosen, .experts = 40, .used = 20}, false, true},
      {"softmax of near ones", {.scores = Scores::kSoftmaxOfNear, .experts = 16, .used = 2, .nearness = 0.02f}},
      {"softmax of 300", {.scores = Scores::kSoftmax, .experts = 300, .used = 10}, true, true},
      {"sigmoid of 700", {.scores = Scores::kSigmoid, .experts = 700, .used = 3}},
  };
}

OperationLimits limits_of(const Routing& routing, int rows) {
  OperationLimits limits;
  limits.max_rows = rows;
  limits.experts = {.experts = routing.experts, .used = routing.used, .hidden = 0, .inner = 0};
  return limits;
}

// What route() leaves on the device.
struct DownloadedRoutes {
  std::vector<int32_t> chosen, positions, counts, offsets, sources;
  std::vector<float> weights;
};

class Router {
 public:
  Router(Device& device, const RouteCase& of, int rows)
      : device_(device),
        stream_(device, true),
        case_(of),
        limits_(limits_of(of.routing, rows)),
        memory_(device.allocate(RouteMemory::bytes(limits_))),
        routes_(memory_, limits_),
        of_experts_(device, 2, of.routing.experts, 77) {}
  ~Router() { device_.free(memory_); }

  RouteArgs args(const Rows& scores, bool on_host) {
    const Rows experts = on_host ? of_experts_.host() : of_experts_.on_device();
    return {case_.routing, case_.correction ? experts.row(0) : nullptr, case_.scales ? experts.row(1) : nullptr,
            scores};
  }
  DownloadedRoutes route(const Rows& scores, int rows) {
    routes_.route(stream_, args(scores, false), rows);
    stream_.finish();
    const RoutesAt& at = routes_.routes();
    const auto experts = static_cast<size_t>(at.experts), routes = static_cast<size_t>(at.routes);
    DownloadedRoutes result{.chosen = read(at.chosen, routes),
                            .positions = read(at.positions, routes),
                            .counts = read(at.counts, experts),
                            .offsets = read(at.offsets, experts + 1),
                            .sources = {},
                            .weights = read(at.weights, routes)};
    result.sources = read(at.sources, static_cast<size_t>(result.offsets.back()));
    return result;
  }
  RouteMemory& routes() { return routes_; }
  Stream& stream() { return stream_; }

 private:
  template <class T>
  std::vector<T> read(Global<T> from, size_t count) {
    std::vector<T> values(count);
    device_.download(reinterpret_cast<std::byte*>(values.data()), from.bytes(), count * sizeof(T));
    return values;
  }

  Device& device_;
  Stream stream_;
  const RouteCase& case_;
  OperationLimits limits_;
  std::byte* memory_;
  RouteMemory routes_;
  TwinRows of_experts_;  // the correction and the scales
};

// Rows of scores, among them ties, infinities and NaN.
void write_special_scores(TwinRows& scores, int experts, int rows) {
  const auto row = [&](int r) { return std::span(scores.host().row(r), static_cast<size_t>(experts)); };
  for (int r = 0; r < rows; ++r) {
    if (r % 11 == 3) std::ranges::fill(row(r), 0.5f);
    if (r % 11 == 4) row(r)[static_cast<size_t>(experts - 2)] = kNan;
    if (r % 11 == 5) std::ranges::fill(row(r), kNan);
    if (r % 11 == 6) row(r)[1] = kInf;
    if (r % 11 == 7) std::ranges::fill(row(r), -kInf);
    if (r % 11 == 8) std::ranges::fill(row(r).first(static_cast<size_t>(experts / 2)), kNan);
    if (r % 11 == 9) row(r)[0] = row(r)[2] = 3.0f;
  }
  scores.upload();
}

// Each row's weights by expert, from the CPU.
std::vector<float> weights_on_cpu(const Compute& compute, const ExpertRows& routes, int experts, int rows) {
  const size_t stride = static_cast<size_t>(experts);
  std::vector<float> results(routes.sources().size() * stride), sums(static_cast<size_t>(rows) * stride);
  for (const ExpertRows::Expert& e : routes.experts())
    for (int at = e.begin; at < e.end; ++at)
      results[static_cast<size_t>(at) * stride + static_cast<size_t>(e.expert)] = 1;
  routes.combine(compute, {results.data(), experts, stride}, {.to = {sums.data(), experts, stride}}, rows);
  return sums;
}

TEST(RoutingOnDevice, HasTheChoicesAndWeightsOfTheCpu) {
  for (const RouteCase& c : route_cases()) {
    // Several tiles of routes, but for the first.
    const int experts = c.routing.experts, used = c.routing.used, rows = experts == 8 ? 40 : 700 / used;
    const std::unique_ptr<Device> device = open(0);
    TwinRows scores(*device, rows, 2 * experts, 1);
    write_special_scores(scores, experts, rows);
    Router router(*device, c, rows);
    const DownloadedRoutes got = router.route(scores.on_device(), rows);

    Team team(1);
    const Compute compute{reference_kernels(), team, Activations::kF32};
    ExpertRows wanted(rows, limits_of(c.routing, rows).experts);
    wanted.route(compute, router.args(scores.host(), true), rows);
    std::vector<std::vector<int32_t>> rows_of(static_cast<size_t>(experts));
    for (const ExpertRows::Expert& e : wanted.experts())
      for (int at = e.begin; at < e.end; ++at)
        rows_of[static_cast<size_t>(e.expert)].push_back(wanted.sources()[static_cast<size_t>(at)]);

    ASSERT_EQ(got.offsets[0], 0) << c.name;
    for (size_t e = 0; e < rows_of.size(); ++e) {
      const auto begin = static_cast<size_t>(got.offsets[e]), end = static_cast<size_t>(got.offsets[e + 1]);
      ASSERT_EQ(got.counts[e], static_cast<int32_t>(rows_of[e].size())) << c.name << ", expert " << e;
      ASSERT_EQ(end - begin, (rows_of[e].size() + 7) / 8 * 8) << c.name << ", expert " << e;
      std::vector<int32_t> padded = rows_of[e];
      padded.resize(end - begin, -1);
      ASSERT_TRUE(std::equal(padded.begin(), padded.end(), got.sources.begin() + got.offsets[e]))
          << c.name << ", expert " << e;
    }
    // The routes lead to these rows, each its own.
    std::vector<int32_t> places = got.positions;
    std::ranges::sort(places);
    ASSERT_TRUE(std::ranges::adjacent_find(places) == places.end()) << c.name;
    std::vector<float> sums(static_cast<size_t>(rows * experts));
    for (size_t i = 0; i < got.chosen.size(); ++i) {
      const auto row = static_cast<int32_t>(i) / used;
      ASSERT_EQ(got.sources[static_cast<size_t>(got.positions[i])], row) << c.name;
      ASSERT_GE(got.positions[i], got.offsets[static_cast<size_t>(got.chosen[i])]) << c.name;
      ASSERT_LT(got.positions[i], got.offsets[static_cast<size_t>(got.chosen[i]) + 1]) << c.name;
      sums[static_cast<size_t>(row * experts + got.chosen[i])] += got.weights[i];
      if (i % static_cast<size_t>(used) > 0 && !c.correction && !c.scales && !std::isnan(got.weights[i]) &&
          c.routing.scores != Routing::Scores::kSoftmaxOfNear) {
        ASSERT_FALSE(got.weights[i] > got.weights[i - 1]) << c.name << ": the best is not first";
      }
    }
    const std::vector<float> wanted_sums = weights_on_cpu(compute, wanted, experts, rows);
    const auto of_row = [&](const std::vector<float>& x, int row) {
      return std::span(x).subspan(static_cast<size_t>(row * experts), static_cast<size_t>(experts));
    };
    for (int row = 0; row < rows; ++row) {
      const auto sum = of_row(sums, row), want = of_row(wanted_sums, row);
      if (std::isnan(want[0])) {  // a weight is NaN or infinite, and makes all of the CPU's sums NaN
        ASSERT_FALSE(std::ranges::all_of(sum, [](float x) { return std::isfinite(x); })) << c.name << ", row " << row;
      } else {
        ASSERT_TRUE(std::ranges::equal(sum, want)) << c.name << ", row " << row;
      }
    }
  }
}

TEST(RoutingOnDevice, GivesARowTheSameBitsAmongAnyOthers) {
  for (const RouteCase& c : route_cases()) {
    constexpr int kRows = 6;
    const std::unique_ptr<Device> device = open(0);
    TwinRows together(*device, kRows, 2 * c.routing.experts, 2), alone(*device, kRows, 2 * c.routing.experts, 2);
    Router router(*device, c, kRows);
    const DownloadedRoutes all = router.route(together.on_device(), kRows);
    const auto used = static_cast<size_t>(c.routing.used);
    for (int row = 0; row < kRows; ++row) {
      const DownloadedRoutes one = router.route(alone.on_device().from(row), 1);
      const size_t at = static_cast<size_t>(row) * used;
      EXPECT_TRUE(std::equal(one.chosen.begin(), one.chosen.end(), all.chosen.begin() + static_cast<ptrdiff_t>(at)));
      EXPECT_EQ(std::memcmp(one.weights.data(), &all.weights[at], used * sizeof(float)), 0) << c.name;
    }
  }
}

TEST(RoutingOnDevice, CountsTheBytesOfExpertsThatHaveRows) {
  const std::vector<RouteCase> cases = route_cases();
  const std::unique_ptr<Device> device = open(0);
  Router router(*device, cases[0], 3);
  Stream& stream = router.stream();
  ExpertBytes bytes(*device, router.routes());
  uint64_t expected = 0;
  for (const unsigned seed : {3u, 4u}) {
    TwinRows scores(*device, 3, 16, seed);
    const DownloadedRoutes routes = router.route(scores.on_device(), 3);
    constexpr uint64_t kBytes = uint64_t{1} << 33;  // more than 32 bits
    router.routes().add_bytes(stream, kBytes + seed);
    expected +=
        (kBytes + seed) * static_cast<uint64_t>(std::ranges::count_if(routes.counts, [](int n) { return n > 0; }));
  }
  bytes.download(stream);
  stream.finish();
  EXPECT_EQ(bytes.take(), 0u);
  bytes.finished();
  EXPECT_EQ(bytes.take(), expected);
  EXPECT_EQ(bytes.take(), 0u);
}

TEST(RoutingOnDevice, KnowsTheBytesOfOnePassWhileTheNextOneRuns) {
  const std::vector<RouteCase> cases = route_cases();
  const std::unique_ptr<Device> device = open(0);
  Router router(*device, cases[0], 3);
  Stream& stream = router.stream();
  ExpertBytes bytes(*device, router.routes());
  TwinRows scores(*device, 3, 16, 3);
  const DownloadedRoutes routes = router.route(scores.on_device(), 3);
  const auto active = static_cast<uint64_t>(std::ranges::count_if(routes.counts, [](int n) { return n > 0; }));
  const auto start = [&](uint64_t of_expert) {
    router.routes().add_bytes(stream, of_expert);
    bytes.download(stream);
  };
  start(1);
  stream.end_pass();
  for (uint64_t pass = 1; pass <= 5; ++pass) {
    start(pass + 1);
    stream.end_pass();
    stream.finish_first();
    bytes.finished_first();
    EXPECT_EQ(bytes.take(), active * pass);
  }
  start(7);
  stream.discard();
  bytes.discarded();
  EXPECT_EQ(bytes.take(), 0u);
  start(8);
  stream.finish();
  bytes.finished();
  EXPECT_GE(bytes.take(), active * (6 + 8)) << "with what the discarded pass has read";
}

TEST(RoutingOnDevice, RejectsMoreExpertsThanItHasRoomFor) {
  OperationLimits limits;
  limits.max_rows = 1;
  limits.experts = {.experts = 1025, .used = 8, .hidden = 0, .inner = 0};
  EXPECT_EQ(
      error_of([&] { RouteMemory(nullptr, limits); }),
      "a layer has 1025 experts, of which a token uses 8; on a GPU at most 1024 and 32 are supported; run the model on "
      "the CPU");
}

}  // namespace
}  // namespace quire::cuda
