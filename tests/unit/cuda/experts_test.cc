// Mixtures of experts on the emulated device, next to those of ops/cpu on the reference kernels.
#include "cuda/linear/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/team.h"
#include "cuda/emulated/device.h"
#include "cuda/linear/inputs.h"
#include "cuda/route.h"
#include "cuda/stream.h"
#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"
#include "sanitizers.h"
#include "unit/cuda/device_memory.h"
#include "unit/cuda/placed.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

using testing::Placed;
using testing::PlacedMatrix;
using testing::PlacedRows;
using testing::random_rows;

struct Mixture {
  int experts = 5, used = 2, hidden = 64, inner = 96;
  TensorType gate = TensorType::Q4_0, up = TensorType::Q4_0, down = TensorType::BF16;
  bool gated = true, transformed = false, biased = false;
  // Factors above the scales are those of each expert, and of each matrix.
  bool own_factors = false, unlike_factors = false;
  Nonlinearity f = Nonlinearity::kSilu;
  float scale = 1;
  bool accumulate = false;
  // In place of the types.
  bool int8_rows = false;  // int8, for inputs of int8 with one scale a row
  bool fp8 = false;        // E4M3, a scale for 128 inputs
};

// The same experts in the host's memory and on the device.
class Experts {
 public:
  Experts(Device& device, Backend& host, const Mixture& m, std::mt19937& random)
      : memory_(std::make_unique<DeviceMemory>(device)) {
    for (int e = 0; e < m.experts; ++e) {
      ExpertLinears on_host, on_device;
      if (m.gated) add(device, host, m, m.gate, m.inner, m.hidden, random, on_host.gate, on_device.gate);
      add(device, host, m, m.up, m.inner, m.hidden, random, on_host.up, on_device.up);
      if (m.transformed && m.gated) on_host.up.transform = on_device.up.transform = on_host.gate.transform;
      add(device, host, m, m.down, m.hidden, m.inner, random, on_host.down, on_device.down);
      host_.push_back(on_host);
      device_.push_back(on_device);
    }
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;

 public:
  std::vector<ExpertLinears> host_, device_;

 private:
  void add(Device& device, Backend& host, const Mixture& m, TensorType type, int rows, int cols, std::mt19937& random,
           Linear& on_host, Linear& on_device) {
    matrices_.push_back(m.int8_rows ? testing::random_matrix(testing::int8_row_weights(), rows, cols, random)
                        : m.fp8     ? testing::random_matrix(testing::fp8_weights(), rows, cols, random)
                                    : testing::random_matrix(type, rows, cols, random));
    on_host.int8_rows = on_device.int8_rows = m.int8_rows;
    float& factor = matrices_.back().matrix.factor;
    if (m.own_factors) factor *= 1 + 0.37f * static_cast<float>(device_.size());
    if (m.unlike_factors) factor *= 1 + 0.11f * static_cast<float>(matrices_.size() % 3);
    placed_.emplace_back(device, matrices_.back().matrix);
    on_host.weight = matrices_.back().matrix;
    on_device.weight = placed_.back().matrix;
    if (m.biased) {
      const std::vector<float> bias = random_rows(1, rows, random);
      on_host.bias = Vector(host, bias);
      on_device.bias = Vector(*memory_, bias);
    }
    if (!m.transformed) return;
    InputTransform transform;
    for (int i = 0; i < cols; ++i) transform.factors.push_back(1 + 0.1f * static_cast<float>(random() % 10));
    on_host.transform = on_device.transform = std::make_shared<const InputTransform>(std::move(transform));
  }

  std::vector<testing::OwnedMatrix> matrices_;
  std::vector<PlacedMatrix> placed_;
};

class CudaExperts : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false};

  static OperationLimits limits_of(const Mixture& m, int rows) {
    OperationLimits limits;
    limits.max_rows = rows;
    limits.inputs = {{rows, m.hidden}};
    limits.forms.transforms = m.transformed;
    limits.forms.int8_rows = m.int8_rows;
    limits.forms.fp8 = m.fp8;
    limits.experts = {m.experts, m.used, m.hidden, m.inner};
    return limits;
  }
  static Routing routing_of(const Mixture& m) { return {.experts = m.experts, .used = m.used}; }
  static std::vector<float> scores_of(const std::vector<float>& scores, int experts) {  // with as much memory again
    std::vector<float> all;
    for (size_t i = 0; i < scores.size(); i += static_cast<size_t>(experts)) {
      all.insert(all.end(), scores.begin() + static_cast<ptrdiff_t>(i),
                 scores.begin() + static_cast<ptrdiff_t>(i) + experts);
      all.insert(all.end(), static_cast<size_t>(experts), 0.0f);
    }
    return all;
  }
  static ExpertArgs args_of(const Mixture& m, std::span<const ExpertLinears> experts, const Rows& x, const Rows& y) {
    return {.experts = experts,
            .gated = m.gated,
            .f = m.f,
            .alpha = 1.7f,
            .limit = 7,
            .x = x,
            .target = {y, m.scale, m.accumulate}};
  }

  std::vector<float> on_host(const Mixture& m, Operations& ops, const Experts& experts, const std::vector<float>& x,
                             const std::vector<float>& scores, int rows) {
    std::vector<float> all = scores_of(scores, m.experts), in = x, y(x.size(), 0.5f);
    const Routing routing = routing_of(m);
    ops.route({.routing = routing, .scores = {all.data(), 2 * m.experts, static_cast<size_t>(2 * m.experts)}}, rows);
    const auto stride = static_cast<size_t>(m.hidden);
    ops.run_experts(args_of(m, experts.host_, {in.data(), m.hidden, stride}, {y.data(), m.hidden, stride}), rows);
    ops.finish();
    return y;
  }

  std::vector<float> on_device(const Mixture& m, const Experts& experts, const std::vector<float>& x,
                               const std::vector<float>& scores, int rows, Activations mode, int most_rows) {
    const OperationLimits limits = limits_of(m, most_rows);
    const Placed<std::byte> route_memory(*device_, RouteMemory::bytes(limits));
    RouteMemory routes(route_memory.data(), limits);
    ExpertMemory memory(*device_, limits);
    std::vector<InputBuffers::Need> needs = limits.inputs;
    needs.push_back(ExpertMemory::inputs(limits));
    InputBuffers inputs(*device_, needs, limits.forms);
    const PlacedRows in(*device_, rows, m.hidden, std::span(x).first(static_cast<size_t>(rows * m.hidden))),
        y(*device_, rows, m.hidden, 0.5f), all(*device_, rows, 2 * m.experts, scores_of(scores, m.experts));
    const Routing routing = routing_of(m);
    routes.route(stream_, {.routing = routing, .scores = all.rows()}, rows);
    memory.run(stream_, inputs, routes, args_of(m, experts.device_, in.rows(), y.rows()), rows, mode);
    ExpertBytes bytes(*device_, routes);
    bytes.download(stream_);
    stream_.finish();
    bytes.finished();
    bytes_ = bytes.take();
    return y.values();
  }
  uint64_t bytes_ = 0;
};

TEST_F(CudaExperts, AreTheHostsButForRounding) {
  std::mt19937 random(1);
  Team team(1);
  const Mixture mixtures[] = {
      {},
      {.gate = TensorType::Q8_0, .up = TensorType::F16, .biased = true, .scale = 0.5f, .accumulate = true},
      {.gated = false, .f = Nonlinearity::kRelu2},
      {.experts = 40, .used = 4, .transformed = true},
      {.gate = TensorType::BF16, .up = TensorType::BF16, .biased = true, .f = Nonlinearity::kClampedSwiglu},
      {.inner = 128,
       .gate = TensorType::NVFP4,
       .up = TensorType::NVFP4,
       .down = TensorType::NVFP4,
       .own_factors = true},
      {.inner = 128,
       .gate = TensorType::NVFP4,
       .up = TensorType::NVFP4,
       .down = TensorType::NVFP4,
       .unlike_factors = true},
      {.hidden = 256, .gate = TensorType::Q6_K, .up = TensorType::Q6_K, .own_factors = true},
      {.hidden = 256, .inner = 160, .biased = true, .fp8 = true},
  };
  for (const Mixture& m : mixtures) {
    const int rows = 9;
    CpuBackend backend(reference_kernels(), team);
    const Experts experts(*device_, backend, m, random);
    const std::vector<float> x = random_rows(rows, m.hidden, random), scores = random_rows(rows, m.experts, random);
    for (const Activations mode : {Activations::kBf16, Activations::kF32, Activations::kInt8, Activations::kFp8}) {
      if (mode == Activations::kFp8 && !m.fp8) continue;
      // The CPU rounds inputs for the gate alone.
      const bool forms_differ = mode == Activations::kInt8 && m.up == TensorType::F16;
      const auto ops = backend.operations(forms_differ ? Activations::kF32 : mode, limits_of(m, rows));
      const std::vector<float> expected = on_host(m, *ops, experts, x, scores, rows),
                               got = on_device(m, experts, x, scores, rows, mode, rows);
      EXPECT_EQ(bytes_, ops->take_expert_bytes());
      float largest = 0;
      for (const float y : expected) largest = std::max(largest, std::abs(y));
      // An input of the down projection that is near the middle of two bf16 numbers, or codes, may be rounded to the other.
      const float tolerance = largest * (forms_differ ? 0.05f : mode == Activations::kF32 ? 1e-5f : 2e-3f);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], tolerance)
            << "mixture " << &m - mixtures << " form " << static_cast<int>(mode) << " at " << i;
    }
  }
}

TEST_F(CudaExperts, GiveARowTheSameBitsWhateverTheOtherRows) {
  std::mt19937 random(2);
  Team team(1);
  CpuBackend backend(reference_kernels(), team);
  const Mixture m{.experts = 4, .used = 2};
  const int most = 80;  // more than 32 rows for some experts
  const Experts experts(*device_, backend, m, random);
  const std::vector<float> x = random_rows(most, m.hidden, random), scores = random_rows(most, m.experts, random);
  for (const Activations mode : {Activations::kBf16, Activations::kInt8}) {
    const std::vector<float> all = on_device(m, experts, x, scores, most, mode, most);
    for (const int rows : {1, 3, 20}) {
      const std::vector<float> few(scores.begin(), scores.begin() + rows * m.experts);
      const std::vector<float> got = on_device(m, experts, x, few, rows, mode, most);
      ASSERT_EQ(std::memcmp(got.data(), all.data(), got.size() * sizeof(float)), 0) << rows;
    }
  }
}

// By products of warpgroups, where a row alone has other kernels. One expert has all rows, twice as many as a block of threads.
TEST_F(CudaExperts, GiveARowTheSameBitsInPrompts) {
  std::mt19937 random(3);
  Team team(1);
  CpuBackend backend(reference_kernels(), team);
  constexpr int kCols = 512;  // ranges of whole chunks
  const Mixture mixtures[] = {
      {.biased = true, .f = Nonlinearity::kClampedSwiglu},
      {.gate = TensorType::BF16, .up = TensorType::BF16, .down = TensorType::F16, .scale = 0.5f, .accumulate = true},
      {.gate = TensorType::Q4_K, .up = TensorType::Q5_K, .down = TensorType::Q6_K},
      {.gate = TensorType::NVFP4, .up = TensorType::NVFP4, .down = TensorType::Q8_0, .unlike_factors = true},
      {.up = TensorType::MXFP4, .down = TensorType::Q4_1, .gated = false, .transformed = true},
      {.biased = true, .int8_rows = true},
      {.transformed = true, .fp8 = true},
  };
  int count = 0;
  for (Mixture m : mixtures) {
    if (++count > 2 && testing::kAddressSanitizer) break;
    m.experts = 4, m.hidden = m.inner = kCols;
    const int most = 140;
    const Experts experts(*device_, backend, m, random);
    const std::vector<float> x = random_rows(most, m.hidden, random);
    std::vector<float> scores = random_rows(most, m.experts, random);
    for (size_t row = 0; row < static_cast<size_t>(most); ++row)
      scores[row * static_cast<size_t>(m.experts) + 2] += 100;
    const Activations mode = m.int8_rows ? Activations::kInt8 : m.fp8 ? Activations::kFp8 : Activations::kBf16;
    static_cast<EmulatedDevice&>(*device_).reset_counters();
    const std::vector<float> all = on_device(m, experts, x, scores, most, mode, most);
    const auto counters = static_cast<EmulatedDevice&>(*device_).counters();
    for (const char* kernel : {"linear_of_rows", "linear_of_tiles", "int8_linear_of_rows", "int8_linear_of_tiles"})
      EXPECT_FALSE(counters.contains(kernel)) << kernel << ", mixture " << count;
    for (const int rows : {1, 7}) {
      const std::vector<float> few(scores.begin(), scores.begin() + rows * m.experts);
      const std::vector<float> got = on_device(m, experts, x, few, rows, mode, most);
      ASSERT_EQ(std::memcmp(got.data(), all.data(), got.size() * sizeof(float)), 0)
          << rows << " rows, mixture " << count;
    }
  }
}

}  // namespace
}  // namespace quire::cuda
