// When launches run, and when as graphs.
#include "cuda/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "cuda/alphabet/alphabet.h"
#include "cuda/emulated/device.h"
#include "cuda/graph_cache.h"
#include "quire/error.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/forwarding_device.h"

namespace quire::cuda {
namespace {

struct ScaleBy {
  static constexpr const char* kName = "scale_by";
  static constexpr int kThreads = 32;
  Global<float> x;
  Global<const float> factor;
  DEVICE void operator()() const { x[thread()] *= factor[0]; }
};

// Scales 32 numbers.
void scale(Stream& stream, const OnDevice<float>& x, float factor) {
  stream.launch({.threads = 32}, ScaleBy{x.data(), stream.place(std::span<const float>(&factor, 1))});
}

TEST(Stream, RepeatsLaunchesAsGraphs) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  // The same launches four times: run, recorded, replayed. The values at the place change, and its address does not.
  for (const float factor : {2.0f, 3.0f, 5.0f, 7.0f}) {
    scale(stream, x, factor);
    stream.finish();
  }
  EXPECT_EQ(x.values(), std::vector<float>(32, 210.0f));
}

TEST(Stream, ForgetsWhatIsDiscarded) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, false);
  const float two = 2;
  const float* const first = stream.place(std::span<const float>(&two, 1));
  scale(stream, x, 3);
  const uint64_t step = stream.step();
  stream.discard();
  EXPECT_NE(stream.step(), step);  // lists that know their places make them anew
  EXPECT_EQ(stream.place(std::span<const float>(&two, 1)), first);
  stream.finish();
  EXPECT_EQ(x.values(), std::vector<float>(32, 1.0f));
  scale(stream, x, 5);
  stream.finish();
  EXPECT_EQ(x.values(), std::vector<float>(32, 5.0f));
}

// Counts what it is given, and runs nothing.
class CountingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void run(std::span<const Launch> launches) override { launched += launches.size(); }
  std::unique_ptr<Graph> record(std::span<const Launch>) override {
    ++recorded;
    return std::make_unique<Graph>();
  }
  void run(Graph&) override { ++graphs; }

  size_t launched = 0, recorded = 0, graphs = 0;
};

// The launches after which a step's first part is started, and some more.
constexpr size_t kFirstPart = 32, kMore = 8;

TEST(Stream, StartsThePartsOfAStepWhileItIsMade) {
  EmulatedDevice emulated;
  CountingDevice device(emulated);
  const OnDevice<float> x(emulated, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  for (size_t step = 0; step < 3; ++step) {
    device.launched = device.recorded = device.graphs = 0;
    const size_t& started = step == 0 ? device.launched : device.graphs;
    const size_t first = step == 0 ? kFirstPart : 1, second = step == 0 ? kMore : 1;
    for (size_t i = 1; i <= kFirstPart + kMore; ++i) {
      scale(stream, x, 2);
      EXPECT_EQ(started, i < kFirstPart ? 0 : first) << step << " " << i;
    }
    stream.finish();
    EXPECT_EQ(started, first + second) << step;
    EXPECT_EQ(device.recorded, step == 1 ? 2u : 0u);
  }
}

TEST(Stream, BringsValuesThatAreMadeAfterTheFirstPart) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  float expected = 1;
  for (const float last : {3.0f, 5.0f, 7.0f}) {
    for (size_t i = 0; i < kFirstPart; ++i) scale(stream, x, i % 2 == 0 ? 2 : 0.5f);
    scale(stream, x, last);
    stream.finish();
    EXPECT_EQ(x.values(), std::vector<float>(32, expected *= last));
  }
}

TEST(Stream, DownloadsWhatTheLaunchesBeforeHaveWritten) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  std::byte* const host = device.allocate_host(32 * sizeof(float));
  const std::span<float> got(reinterpret_cast<float*>(host), 32);
  std::ranges::fill(got, 0.0f);
  scale(stream, x, 3);
  stream.download(host, reinterpret_cast<const std::byte*>(x.data()), got.size_bytes());
  scale(stream, x, 5);
  EXPECT_EQ(got[31], 0.0f);  // as on a GPU: not before finish()
  stream.finish();
  EXPECT_EQ(got[31], 3.0f);
  EXPECT_EQ(x.values()[31], 15.0f);
  device.free_host(host);
}

// Two passes have places of their own, and the host may read what the first one has made while the second runs.
TEST(Stream, WaitsForOnePassWhileTheNextRuns) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  std::byte* const host = device.allocate_host(8);
  float brought[2] = {0, 0};
  const auto end_pass = [&](float factor, size_t place) {
    scale(stream, x, factor);
    stream.download(host + 4 * place, reinterpret_cast<const std::byte*>(&x.data()[0]), 4);
    stream.end_pass();
  };
  const auto look = [&] { std::memcpy(brought, host, sizeof brought); };
  std::memset(host, 0, 8);
  end_pass(2, 0);
  end_pass(3, 1);
  look();
  EXPECT_EQ(brought[0], 0);
  stream.finish_first();
  look();
  EXPECT_EQ(brought[0], 2);
  EXPECT_EQ(brought[1], 0);
  end_pass(5, 0);  // in the places of the first pass
  stream.finish_first();
  look();
  EXPECT_EQ(brought[0], 2);
  EXPECT_EQ(brought[1], 6);
  stream.finish_first();
  look();
  EXPECT_EQ(brought[0], 30);
  stream.finish_first();  // of nothing
  end_pass(7, 1);
  stream.discard();
  look();
  EXPECT_EQ(brought[1], 210);
  device.free_host(host);
}

TEST(Stream, DiscardsWhatHasNotBeenStarted) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  for (size_t i = 0; i < kFirstPart + kMore; ++i) scale(stream, x, i < kFirstPart ? 1 : 2);
  stream.discard();
  EXPECT_EQ(x.values(), std::vector<float>(32, 1.0f));  // nothing runs any more: they can be read
  for (size_t i = 0; i < kMore; ++i) scale(stream, x, 2);
  EXPECT_EQ(x.values(), std::vector<float>(32, 1.0f));  // the next step has a first part of its own
  stream.finish();
  EXPECT_EQ(x.values(), std::vector<float>(32, 256.0f));
}

TEST(Stream, ForgetsAStepWhosePartFails) {
  EmulatedDevice device;
  const OnDevice<float> x(device, std::vector<float>(32, 1.0f));
  Stream stream(device, true);
  device.inject({.launch = 3, .allocation = {}});
  size_t made = 0;
  EXPECT_THROW(for (; made < kFirstPart; ++made) scale(stream, x, 2), Error);
  EXPECT_EQ(made, kFirstPart - 1);
  stream.discard();  // of a lost device
  EXPECT_THROW(stream.finish(), Error);
}

// Launches that differ from those of other numbers.
std::vector<Launch> launches_of(int number, size_t count = 1) {
  return std::vector<Launch>(count, make_launch(LaunchShape{.x = 1 + number, .threads = 32}, ScaleBy{}));
}

TEST(GraphCache, RecordsTheSecondTime) {
  EmulatedDevice emulated;
  CountingDevice device(emulated);
  GraphCache cache(device);
  const std::vector<Launch> launches = launches_of(0, 3), others = launches_of(1, 3);
  cache.run(launches);
  cache.run(others);
  EXPECT_EQ(device.launched, 6u);
  EXPECT_EQ(device.recorded, 0u);
  for (size_t times = 1; times < 4; ++times) {
    cache.run(launches);
    EXPECT_EQ(device.launched, 6u);
    EXPECT_EQ(device.recorded, 1u);
    EXPECT_EQ(device.graphs, times);
  }
  cache.run(std::span(launches).first(2));  // the same beginning
  EXPECT_EQ(device.launched, 8u);
}

// With ranks, each part of a step between two exchanges is a list.
TEST(GraphCache, KeepsAsManyListsAsItsLaunchesAllow) {
  constexpr int kLists = GraphCache::kMostLaunches;
  EmulatedDevice emulated;
  CountingDevice device(emulated);
  GraphCache cache(device);
  for (int times = 0; times < 3; ++times)
    for (int number = 0; number < kLists; ++number) cache.run(launches_of(number));
  EXPECT_EQ(device.launched, size_t{kLists});
  EXPECT_EQ(device.recorded, size_t{kLists});
  EXPECT_EQ(device.graphs, size_t{2 * kLists});
}

TEST(GraphCache, DropsWhatHasNotRunForLongest) {
  constexpr size_t kMost = GraphCache::kMostLaunches;
  EmulatedDevice emulated;
  CountingDevice device(emulated);
  GraphCache cache(device);
  const std::vector<Launch> first = launches_of(1, kMost / 2), second = launches_of(2, kMost / 2),
                            third = launches_of(3, 1), whole = launches_of(4, kMost);
  const auto runs_as_graph = [&](std::span<const Launch> launches) {
    const size_t before = device.graphs;
    cache.run(launches);
    return device.graphs > before;
  };
  EXPECT_FALSE(runs_as_graph(first));
  EXPECT_FALSE(runs_as_graph(second));
  EXPECT_TRUE(runs_as_graph(first));
  EXPECT_FALSE(runs_as_graph(third));  // in place of the second
  EXPECT_TRUE(runs_as_graph(first));
  EXPECT_TRUE(runs_as_graph(third));
  EXPECT_FALSE(runs_as_graph(second));  // in place of the first
  EXPECT_TRUE(runs_as_graph(third));
  EXPECT_FALSE(runs_as_graph(whole));
  EXPECT_TRUE(runs_as_graph(whole));
  EXPECT_FALSE(runs_as_graph(third));
  // More than it keeps at all takes no others' place.
  const std::vector<Launch> longer = launches_of(5, kMost + 1);
  EXPECT_FALSE(runs_as_graph(longer));
  EXPECT_FALSE(runs_as_graph(longer));
  EXPECT_TRUE(runs_as_graph(third));
}

}  // namespace
}  // namespace quire::cuda
