// Linears with FP8 inputs on the emulated device: next to the CPU's, and the same bits for any number of rows.
#include "cuda/linear/linear_fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/float8.h"
#include "cuda/emulated/device.h"
#include "cuda/linear/inputs.h"
#include "cuda/stream.h"
#include "kernels/kernels.h"
#include "sanitizers.h"
#include "unit/cuda/device_linear.h"
#include "unit/cuda/placed.h"
#include "unit/cuda/reference_linear.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

using testing::PlacedRows;
using testing::random_rows;
using testing::reference;

class CudaFp8 : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false, size_t{8} << 20};

  std::vector<float> run(const testing::LinearCase& c, std::span<const float> x, int rows, LinearVariant variant = {}) {
    return testing::by_device(*device_, stream_, c, Activations::kFp8, x, rows, variant);
  }
};

struct Fp8Shape {
  int group;  // inputs under a scale
  ScaleKind scale;
  int outputs, cols;
};
// A scale for 128 inputs, for 32 (MXFP8), for a row, and for groups that are no whole chunks.
constexpr Fp8Shape kFp8Shapes[] = {{128, ScaleKind::kF32, 37, 1152},
                                   {32, ScaleKind::kE8M0, 37, 352},
                                   {4160, ScaleKind::kF32, 150, 4160},
                                   {96, ScaleKind::kF32, 16, 192},
                                   {64, ScaleKind::kF32, 5, 64}};

TEST_F(CudaFp8, IsTheCpusButForTheOrderOfSums) {
  std::mt19937 random(1);
  for (const Fp8Shape& s : kFp8Shapes) {
    for (const bool gated : {false, true}) {
      const testing::Weights kind = testing::fp8_weights(s.group, s.scale);
      const auto w = testing::random_matrix(kind, s.outputs, s.cols, random),
                 up = testing::random_matrix(kind, s.outputs, s.cols, random);
      const int rows = 3;
      std::vector<float> x = random_rows(rows, s.cols, random);
      for (int k = 0; k < s.cols; ++k) x[static_cast<size_t>(k)] *= 1e-6f;
      x[static_cast<size_t>(s.cols + 7)] = 300;
      testing::LinearCase c{.w = &w.matrix, .up = gated ? &up.matrix : nullptr};
      if (gated) c.projection.f = Nonlinearity::kSilu;
      const std::vector<float> expected = reference(c, Activations::kFp8, x, rows), got = run(c, x, rows);
      double difference = 0, size = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        difference += std::pow(double{got[i]} - expected[i], 2), size += std::pow(expected[i], 2);
      }
      EXPECT_LT(std::sqrt(difference / size), 1e-6) << "group " << s.group << " gated " << gated;
    }
  }
}

TEST_F(CudaFp8, HasTheSameBitsForAnyNumberOfRows) {
  std::mt19937 random(2);
  for (const Fp8Shape& s : kFp8Shapes) {
    if (testing::kAddressSanitizer && s.cols > 1000) continue;
    const auto w = testing::random_matrix(testing::fp8_weights(s.group, s.scale), s.outputs, s.cols, random);
    const int most = s.cols > 1000 ? 131 : 66;
    const std::vector<float> x = random_rows(most, s.cols, random);
    const std::vector<float> all = run({.w = &w.matrix}, x, most);
    for (const int rows : {1, 8, 9, most}) {
      for (const bool apart : {false, true}) {  // ranges in one block of threads, or each in its own
        const int first = most - rows;
        const std::vector<float> some = run({.w = &w.matrix}, std::span(x).subspan(static_cast<size_t>(first * s.cols)),
                                            rows, {.kernel = LinearKernel::kWarpgroups, .apart = apart});
        ASSERT_EQ(std::memcmp(some.data(), &all[static_cast<size_t>(first * s.outputs)], some.size() * sizeof(float)),
                  0)
            << "group " << s.group << " rows " << rows << " apart " << apart;
      }
    }
  }
  EXPECT_GT(static_cast<EmulatedDevice&>(*device_).counters().at("finish_sums").launches, 0U);
}

TEST_F(CudaFp8, RoundsRowsAsTheCpuDoes) {
  std::mt19937 random(3);
  for (const int cols : {32, 77, 9000, 17000}) {  // the longest are read by other kernels
    constexpr int kRows = 5;
    std::vector<float> x = random_rows(kRows, cols, random);
    constexpr float kScales[kRows] = {1, 1e-9f, 300, 1e-38f, 1};
    for (size_t i = 0; i < x.size(); ++i) x[i] *= kScales[i / static_cast<size_t>(cols)];
    x.back() = std::numeric_limits<float>::infinity();
    const PlacedRows in(*device_, kRows, cols, x);
    const InputBuffers::Need need{kRows, cols};
    InputBuffers inputs(*device_, {&need, 1}, {});
    PackedMatrix shape = describe_packed(TensorType::Q8_0, 16, cols);
    shape.format = {.codes = Codes::kE4M3, .scale = ScaleKind::kF32, .group = (cols + 31) / 32 * 32};
    const Linear linear{.weight = shape};
    const Inputs prepared = inputs.prepare(stream_, Activations::kFp8, in.rows(), {}, kRows, {&linear});
    stream_.finish();
    const Inputs::Entry& entry = prepared.of(Activations::kFp8, linear);
    const int blocks = shape.blocks();
    std::vector<std::byte> row(entry.stride);
    for (int r = 0; r < kRows; ++r) {
      device_->download(row.data(), entry.data + static_cast<size_t>(r) * entry.stride, entry.stride);
      const std::vector<float> of_row(x.begin() + r * cols, x.begin() + (r + 1) * cols);
      const testing::RoundedRows rounded = testing::rounded_rows(Activations::kFp8, {}, of_row, 1, cols);
      const auto* const expected = reinterpret_cast<const FloatBlock*>(rounded.data.data());
      float scale;
      std::memcpy(&scale, &row[static_cast<size_t>(blocks) * 32], sizeof scale);
      for (int k = 0; k < 32 * blocks; ++k) {
        constexpr int kByteOf[8] = {0, 2, 16, 18, 1, 3, 17, 19};  // of the inputs of lane 0
        const int at = k / 32 * 32 + k % 32 / 8 * 4 + kByteOf[k % 8];
        const float got = scale * e4m3_to_f32(static_cast<uint8_t>(row[static_cast<size_t>(at)]));
        const float want = expected[k / 32].x[k % 32];
        if (std::isnan(want) && std::isnan(got)) continue;
        ASSERT_EQ(got, want) << cols << " inputs, row " << r << ", input " << k;
      }
      EXPECT_EQ(std::isnan(expected[0].x[0]), r == kRows - 1);
    }
  }
}

}  // namespace
}  // namespace quire::cuda
