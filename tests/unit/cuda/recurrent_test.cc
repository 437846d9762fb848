// Recurrent layers on a device, next to the CPU's with its reference kernels: results and states are close, the convolution's
// are equal, and neither the cut into steps nor other sequences change a bit.
#include "cuda/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/team.h"
#include "cuda/device.h"
#include "cuda/rows.h"
#include "device_memory.h"
#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/recurrent.h"
#include "unit/cuda/forwarding_device.h"

namespace quire::cuda {
namespace {

using Numbers = std::vector<float>;

constexpr int kSpanRows = 17, kStateSlots = 6;

Numbers normal_numbers(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Numbers x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// A layer over rows of `cols` numbers. weights: the layer's, in memory of whoever runs it.
struct RecurrentLayer {
  std::string name;
  StateLayout layout;
  int cols;
  bool exact;  // the device has the CPU's bits
  // The columns of the results. Those of gates, queries and keys may be left as they are.
  int first_result, results;
  Numbers weights;
  // The arguments, for rows x and these weights.
  std::function<Convolution(const Rows& x, const float* weights)> convolution;
  std::function<DeltaRule(const Rows& x, const float* weights)> delta;
  std::function<StateSpace(const Rows& x, const float* weights)> state_space;
};

RecurrentLayer convolution_layer(int channels, int width, bool bias, bool silu) {
  const auto count = static_cast<size_t>(channels * width);
  return {.name = "convolution of width " + std::to_string(width),
          .layout = {.channels = channels, .width = width},
          .cols = channels,
          .exact = true,
          .first_result = 0,
          .results = channels,
          .weights = normal_numbers(count + static_cast<size_t>(channels), 1),
          .convolution =
              [=](const Rows& x, const float* weights) {
                return Convolution{.x = x, .weight = weights, .bias = bias ? weights + count : nullptr, .silu = silu};
              },
          .delta = {},
          .state_space = {}};
}

RecurrentLayer delta_layer(int key_dim, int value_dim, bool interleaved) {
  constexpr int kKeyHeads = 2, kValueHeads = 4;
  const int keys = kKeyHeads * key_dim, values = kValueHeads * value_dim;
  Numbers weights = normal_numbers(2 * kValueHeads, 2);
  for (int h = 0; h < kValueHeads; ++h) weights[static_cast<size_t>(h)] = -std::abs(weights[static_cast<size_t>(h)]);
  return {.name = "delta rule of " + std::to_string(key_dim) + " by " + std::to_string(value_dim),
          // The matrices begin after another part.
          .layout = {.channels = 9, .width = 2, .heads = kValueHeads, .rows = key_dim, .cols = value_dim},
          .cols = 2 * keys + values + 2 * kValueHeads,
          .exact = false,
          .first_result = 2 * keys,
          .results = values,
          .weights = std::move(weights),
          .convolution = {},
          .delta =
              [=](const Rows& x, const float* of_layer) {
                const int v = 2 * keys, decay = v + values;
                return DeltaRule{.q = x.columns(0, keys),
                                 .k = x.columns(keys, keys),
                                 .v = x.columns(v, values),
                                 .decay = x.columns(decay, kValueHeads),
                                 .beta = x.columns(decay + kValueHeads, kValueHeads),
                                 .factor = of_layer,
                                 .bias = of_layer + kValueHeads,
                                 .key_heads = kKeyHeads,
                                 .interleaved = interleaved};
              },
          .state_space = {}};
}

RecurrentLayer state_space_layer(int state_dim, int head_dim) {
  constexpr int kHeads = 4, kGroups = 2;
  Numbers weights = normal_numbers(3 * kHeads, 3);
  for (int h = 0; h < kHeads; ++h) weights[static_cast<size_t>(h)] = -std::abs(weights[static_cast<size_t>(h)]);
  return {.name = "state space of " + std::to_string(state_dim) + " by " + std::to_string(head_dim),
          .layout = {.channels = 9, .width = 2, .heads = kHeads, .rows = state_dim, .cols = head_dim},
          .cols = kHeads * head_dim + 2 * kGroups * state_dim + kHeads,
          .exact = false,
          .first_result = 0,
          .results = kHeads * head_dim,
          .weights = std::move(weights),
          .convolution = {},
          .delta = {},
          .state_space = [=](const Rows& x, const float* of_layer) {
            const int b = kHeads * head_dim, c = b + kGroups * state_dim;
            return StateSpace{.x = x.columns(0, b),
                              .b = x.columns(b, kGroups * state_dim),
                              .c = x.columns(c, kGroups * state_dim),
                              .step = x.columns(c + kGroups * state_dim, kHeads),
                              .bias = of_layer + kHeads,
                              .a = of_layer,
                              .d = of_layer + 2 * kHeads,
                              .groups = kGroups};
          }};
}

// Of odd and even shapes, in each of the kernels' sizes.
std::vector<RecurrentLayer> recurrent_layers() {
  return {convolution_layer(133, 4, true, true),
          convolution_layer(5, 2, false, false),
          convolution_layer(7, 8, true, false),
          delta_layer(20, 24, false),
          delta_layer(17, 5, true),
          delta_layer(72, 40, true),
          delta_layer(144, 33, false),
          state_space_layer(16, 20),
          state_space_layer(70, 36),
          state_space_layer(130, 3)};
}

CacheShape state_shape(const RecurrentLayer& layer) {
  // A layer before it, so that the states of the layer are not those of the cache.
  return {{KvType::kF32,
           {{.kind = LayerCache::Kind::kState, .state_bytes = 192},
            {.kind = LayerCache::Kind::kState, .state_bytes = layer.layout.bytes()}}},
          0,
          kStateSlots};
}

// A layer's states, with what earlier sequences left: it must not matter.
struct StatesOf {
  CacheMemory cache;
  LayerStates states;

  StatesOf(const RecurrentLayer& layer, Backend& backend)
      : cache(backend, state_shape(layer)), states{cache, 1, layer.layout} {
    const Numbers garbage(layer.layout.bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    for (int slot = 0; slot < kStateSlots; ++slot)
      backend.write(cache.state(1, slot).data(), layer.layout.bytes(),
                    [&](std::span<std::byte> host) { std::memcpy(host.data(), garbage.data(), host.size()); });
  }
  // The part that the layer writes.
  Numbers state(Backend& backend, int slot) const {
    const StateLayout& l = states.layout;
    HostCopy copy;
    const auto all = view_floats(backend, states.inputs(slot), l.bytes() / sizeof(float), copy);
    const auto part =
        l.heads > 0 ? all.subspan(l.matrices_at(), static_cast<size_t>(l.heads) * l.matrix()) : all.first(l.inputs());
    return {part.begin(), part.end()};
  }
};

struct OnCpu {
  Team team{1};
  CpuBackend backend{reference_kernels(), team};
  StatesOf states;

  explicit OnCpu(const RecurrentLayer& layer) : states(layer, backend) {}
  void run(const RecurrentLayer& layer, const Rows& x, std::span<const StateSpan> spans, int rows) {
    const Compute compute = backend.compute(Activations::kF32);
    const float* const weights = layer.weights.data();
    if (layer.convolution) quire::convolve(compute, states.states, layer.convolution(x, weights), spans);
    if (layer.delta) quire::delta_rule(compute, states.states, layer.delta(x, weights), spans, rows);
    if (layer.state_space) quire::state_space(compute, states.states, layer.state_space(x, weights), spans, rows);
  }
  Numbers state(int slot) { return states.state(backend, slot); }
};

struct OnGpu {
  std::unique_ptr<Device> device = open(0);
  Stream stream{*device, true};
  DeviceMemory backend{*device};
  StatesOf states;
  Vector weights;
  SpanLists lists;

  explicit OnGpu(const RecurrentLayer& layer) : states(layer, backend), weights(backend, layer.weights) {}
  void run(const RecurrentLayer& layer, const Rows& x, std::span<const StateSpan> spans, int rows) {
    if (layer.convolution) convolve(stream, lists, states.states, layer.convolution(x, weights.data()), spans);
    if (layer.delta) delta_rule(stream, lists, states.states, layer.delta(x, weights.data()), spans, rows);
    if (layer.state_space) state_space(stream, lists, states.states, layer.state_space(x, weights.data()), spans, rows);
    stream.finish();
  }
  Numbers state(int slot) { return states.state(backend, slot); }
};

// The layer's results among the numbers of rows.
Numbers results_of(const RecurrentLayer& layer, std::span<const float> rows) {
  Numbers results;
  const size_t stride = row_stride(layer.cols);
  for (size_t at = 0; at < rows.size(); at += stride) {
    const auto of_row = rows.subspan(at + static_cast<size_t>(layer.first_result), static_cast<size_t>(layer.results));
    results.insert(results.end(), of_row.begin(), of_row.end());
  }
  return results;
}

void expect_near(const Numbers& got, const Numbers& want, bool exact, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  if (exact) {
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
    return;
  }
  float largest = 0;
  for (const float w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5f * largest) << what << ", number " << i;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(RecurrentLayersOnDevice, GiveTheResultsAndStatesOfTheCpu) {
  for (const RecurrentLayer& layer : recurrent_layers()) {
    OnCpu cpu(layer);
    OnGpu gpu(layer);
    TwinRows x(*gpu.device, kSpanRows + 1, layer.cols, 7);
    const std::vector<StateCopy> copies = {{0, 3}, {7, 4}, {7, 5}, {8, 1}};
    const StateSpan spans[] = {{.row = 0, .rows = 1, .position = 0, .slot = 2, .copies = {}},
                               {.row = 1, .rows = kSpanRows, .position = 0, .slot = 0, .copies = copies}};
    cpu.run(layer, x.host(), spans, kSpanRows + 1);
    gpu.run(layer, x.on_device(), spans, kSpanRows + 1);
    expect_near(results_of(layer, x.download()), results_of(layer, x.numbers()), layer.exact, layer.name);
    for (int slot = 0; slot < kStateSlots; ++slot)
      expect_near(gpu.state(slot), cpu.state(slot), layer.exact, layer.name + ", slot " + std::to_string(slot));
  }
}

TEST(RecurrentLayersOnDevice, GiveTheSameBitsForAnyCutAndAmongOtherSequences) {
  for (const RecurrentLayer& layer : recurrent_layers()) {
    OnGpu whole(layer);
    TwinRows expected(*whole.device, kSpanRows, layer.cols, 8);
    const StateSpan all{.row = 0, .rows = kSpanRows, .position = 0, .slot = 0, .copies = {}};
    whole.run(layer, expected.on_device(), {&all, 1}, kSpanRows);
    const Numbers wanted = results_of(layer, expected.download());
    for (const std::vector<int>& cut : std::vector<std::vector<int>>{{1, 9, 7}, {8, 8, 1}}) {
      OnGpu gpu(layer);
      TwinRows x(*gpu.device, kSpanRows, layer.cols, 8);
      Numbers got;
      int first = 0;
      for (const int rows : cut) {
        // In front of the rows, those of another sequence.
        TwinRows step(*gpu.device, rows + 3, layer.cols, 9);
        std::memcpy(step.host().row(3), x.host().row(first),
                    static_cast<size_t>(rows) * x.host().stride * sizeof(float));
        step.upload();
        const StateSpan spans[] = {{.row = 0, .rows = 3, .position = 0, .slot = 4, .copies = {}},
                                   {.row = 3, .rows = rows, .position = first, .slot = 2, .copies = {}}};
        gpu.run(layer, step.on_device(), spans, rows + 3);
        const Numbers of_step = step.download();
        const Numbers results = results_of(layer, std::span(of_step).subspan(3 * x.host().stride));
        got.insert(got.end(), results.begin(), results.end());
        first += rows;
      }
      EXPECT_TRUE(same_bits(got, wanted)) << layer.name;
      EXPECT_TRUE(same_bits(gpu.state(2), whole.state(0))) << layer.name;
    }
  }
}

// So many rows that each warp of the convolution goes on to further ones.
TEST(RecurrentLayersOnDevice, ConvolveLongSpansWithTheCpusBits) {
  for (const RecurrentLayer& layer : {convolution_layer(40, 4, true, true), convolution_layer(3, 8, false, false)}) {
    constexpr int kLongRows = 301;
    OnCpu cpu(layer);
    OnGpu gpu(layer);
    TwinRows x(*gpu.device, kLongRows, layer.cols, 11);
    const std::vector<StateCopy> copies = {{5, 1}, {63, 2}, {64, 3}, {200, 4}};
    const StateSpan first{.row = 0, .rows = 3, .position = 0, .slot = 0, .copies = {}},
        rest{.row = 3, .rows = kLongRows - 3, .position = 3, .slot = 0, .copies = copies};
    for (const StateSpan& span : {first, rest}) {
      cpu.run(layer, x.host(), {&span, 1}, kLongRows);
      gpu.run(layer, x.on_device(), {&span, 1}, kLongRows);
    }
    expect_near(results_of(layer, x.download()), results_of(layer, x.numbers()), true, layer.name);
    for (int slot = 0; slot < 5; ++slot) expect_near(gpu.state(slot), cpu.state(slot), true, layer.name);
  }
}

TEST(RecurrentLayersOnDevice, ContinueFromACopiedState) {
  for (const RecurrentLayer& layer : recurrent_layers()) {
    OnGpu gpu(layer);
    TwinRows x(*gpu.device, kSpanRows, layer.cols, 10), again(*gpu.device, kSpanRows, layer.cols, 10);
    const std::vector<StateCopy> copies = {{11, 1}};
    const StateSpan all{.row = 0, .rows = kSpanRows, .position = 0, .slot = 0, .copies = copies};
    gpu.run(layer, x.on_device(), {&all, 1}, kSpanRows);
    const StateSpan rest{.row = 0, .rows = kSpanRows - 12, .position = 12, .slot = 1, .copies = {}};
    gpu.run(layer, again.on_device().from(12), {&rest, 1}, rest.rows);
    const auto tail = [&](const TwinRows& rows) {
      const Numbers numbers = rows.download();
      return results_of(layer, std::span(numbers).subspan(12 * row_stride(layer.cols)));
    };
    EXPECT_TRUE(same_bits(tail(x), tail(again))) << layer.name;
    EXPECT_TRUE(same_bits(gpu.state(0), gpu.state(1))) << layer.name;
  }
}

// A device that notes which launches of a stream are new to it, and which are repeated.
class NotingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  using ForwardingDevice::run;
  int recorded() const { return recorded_; }
  int repeated() const { return repeated_; }

  std::unique_ptr<Graph> record(std::span<const Launch> launches) override {
    ++recorded_;
    return ForwardingDevice::record(launches);
  }
  void run(Graph& graph) override {
    ++repeated_;
    ForwardingDevice::run(graph);
  }

 private:
  int recorded_ = 0, repeated_ = 0;
};

// Positions, slots and copies change from step to step; the launches do not.
TEST(RecurrentLayersOnDevice, RepeatTheLaunchesOfAStepThatDecodes) {
  for (const RecurrentLayer& layer :
       {convolution_layer(40, 4, true, true), delta_layer(20, 24, false), state_space_layer(16, 20)}) {
    OnGpu gpu(layer);
    NotingDevice device(*gpu.device);
    Stream stream(device, true);
    TwinRows x(*gpu.device, 2, layer.cols, 12), gathered(*gpu.device, 2, layer.cols, 13);
    for (int step = 0; step < 5; ++step) {
      const std::vector<StateCopy> copies(step == 3 ? 2 : 0, {0, 5});
      const StateSpan spans[] = {{.row = 0, .rows = 1, .position = step, .slot = 1, .copies = copies},
                                 {.row = 1, .rows = 1, .position = 7 * step, .slot = step % 2 * 2, .copies = {}}};
      const Rows rows = x.on_device();
      const float* const weights = gpu.weights.data();
      if (layer.convolution) convolve(stream, gpu.lists, gpu.states.states, layer.convolution(rows, weights), spans);
      if (layer.delta) delta_rule(stream, gpu.lists, gpu.states.states, layer.delta(rows, weights), spans, 2);
      if (layer.state_space)
        state_space(stream, gpu.lists, gpu.states.states, layer.state_space(rows, weights), spans, 2);
      // What is placed after the lists keeps its place too.
      gather(stream, rows, std::vector<int32_t>{step % 2, 1}, gathered.on_device());
      stream.finish();
    }
    EXPECT_EQ(device.recorded(), 1) << layer.name;
    EXPECT_EQ(device.repeated(), 4) << layer.name;
  }
}

}  // namespace
}  // namespace quire::cuda
