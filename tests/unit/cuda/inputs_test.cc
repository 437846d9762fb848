// Prepared inputs on the emulated device, next to the norms and transforms of the host.
#include "cuda/linear/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "cuda/stream.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "unit/cuda/placed.h"

namespace quire::cuda {
namespace {

using testing::Placed;
using testing::PlacedRows;
using testing::random_rows;

// The layout that cuda/linear/inputs.h gives, taken apart.
struct ReadRow {
  std::vector<float> terms[3];
  std::vector<float> sums;  // of half blocks
};
ReadRow read_row(const std::byte* row, Activations form, int cols) {
  const int blocks = (cols + kBlockInputs - 1) / kBlockInputs;
  ReadRow read;
  const auto* numbers = reinterpret_cast<const uint16_t*>(row);
  for (int t = 0; t < input_terms(form); ++t) {
    read.terms[t].resize(static_cast<size_t>(blocks) * kBlockInputs);
    for (int b = 0; b < blocks; ++b) {
      for (int s = 0; s < 2; ++s) {
        for (int h = 0; h < 2; ++h) {
          for (int i = 0; i < 4; ++i) {
            for (int e = 0; e < 2; ++e)
              read.terms[t][32 * b + 8 * i + 2 * (2 * s + h) + e] =
                  bf16_to_f32(numbers[(t * blocks + b) * 32 + 16 * s + 8 * h + 2 * i + e]);
          }
        }
      }
    }
  }
  const auto* sums = reinterpret_cast<const float*>(numbers + input_terms(form) * blocks * 32);
  read.sums.assign(sums, sums + 2 * blocks);
  return read;
}

class CudaInputs : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false};

  std::vector<ReadRow> read(const Inputs::Entry& entry, int cols, const std::vector<int>& rows) {
    std::vector<ReadRow> all;
    for (const int row : rows) {
      std::vector<std::byte> bytes(entry.stride);
      device_->download(bytes.data(), entry.data + static_cast<size_t>(row) * entry.stride, entry.stride);
      all.push_back(read_row(bytes.data(), entry.form, cols));
    }
    return all;
  }

  // expected: float32 inputs. exact: with the bits of them, else but for the norm's rounding.
  void expect_inputs(const ReadRow& row, Activations form, const float* expected, int cols, bool exact) {
    const int blocks = (cols + kBlockInputs - 1) / kBlockInputs;
    std::vector<float> values(static_cast<size_t>(blocks) * kBlockInputs);
    for (size_t k = 0; k < values.size(); ++k) {
      const float want = k < static_cast<size_t>(cols) ? expected[k] : 0.0f;
      if (form == Activations::kF32) {
        const float got = row.terms[0][k] + (row.terms[1][k] + row.terms[2][k]);
        values[k] = got;
        if (exact) {
          ASSERT_EQ(got, want) << "input " << k;
        }
        ASSERT_NEAR(got, want, 1e-6f * (std::abs(want) + 1)) << "input " << k;
      } else {
        values[k] = row.terms[0][k];
        if (exact) {
          ASSERT_EQ(row.terms[0][k], bf16_to_f32(f32_to_bf16(want))) << "input " << k;
        }
        ASSERT_NEAR(row.terms[0][k], want, std::abs(want) / 250) << "input " << k;
      }
    }
    for (size_t half = 0; half < row.sums.size(); ++half) {
      double sum = 0, size = 0;
      for (size_t k = 16 * half; k < 16 * (half + 1); ++k) sum += values[k], size += std::abs(values[k]);
      ASSERT_NEAR(row.sums[half], sum, 1e-6 * size) << "half " << half;
    }
  }
};

TEST_F(CudaInputs, AreNormalizedAndRounded) {
  std::mt19937 random(1);
  for (const int cols : {1, 77, 1000, 9000, 17000}) {  // the longest are read by other kernels
    const int rows = cols > 1000 ? 1 : 3;
    const std::vector<float> x = random_rows(rows, cols, random), weight = random_rows(1, cols, random),
                             bias = random_rows(1, cols, random);
    const PlacedRows on_device(*device_, rows, cols, x);
    const Placed<float> weights(*device_, std::span<const float>(weight)),
        biases(*device_, std::span<const float>(bias));
    const InputBuffers::Need need{rows, cols};
    InputBuffers inputs(*device_, {&need, 1}, {});
    const Linear linear{.weight = describe_packed(TensorType::BF16, 16, cols)};
    for (const NormKind kind : {NormKind::kNone, NormKind::kRms, NormKind::kLayer, NormKind::kL2}) {
      for (const bool weighted : {false, true}) {
        if (cols == 1 && kind == NormKind::kLayer) continue;  // 0 / epsilon
        for (const Activations form : {Activations::kBf16, Activations::kF32}) {
          const NormView norm{kind, 1e-5f, weighted ? weights.data() : nullptr, weighted ? biases.data() : nullptr};
          std::vector<float> expected = x;
          if (kind != NormKind::kNone) {
            reference_kernels().normalize({.kind = kind,
                                           .x = x.data(),
                                           .x_stride = static_cast<size_t>(cols),
                                           .y = expected.data(),
                                           .y_stride = static_cast<size_t>(cols),
                                           .size = cols,
                                           .weight = weighted ? weight.data() : nullptr,
                                           .bias = weighted ? bias.data() : nullptr,
                                           .epsilon = 1e-5f},
                                          0, rows);
          }
          const Inputs prepared = inputs.prepare(stream_, form, on_device.rows(), norm, rows, {&linear}, form);
          stream_.finish();
          const auto got = read(prepared.of(form, linear), cols, rows == 1 ? std::vector{0} : std::vector{0, 1, 2});
          for (int r = 0; r < rows; ++r) {
            // Biases cancel what the norm gives: compare by magnitude where there is one.
            if (weighted && kind != NormKind::kNone) {
              for (int k = 0; k < cols; ++k)
                ASSERT_NEAR(got[r].terms[0][k], expected[r * cols + k],
                            0.005f * (std::abs(expected[r * cols + k]) + std::abs(bias[k])))
                    << "norm " << static_cast<int>(kind) << " cols " << cols << " row " << r << " input " << k;
            } else {
              SCOPED_TRACE(cols);
              expect_inputs(got[r], form, &expected[r * cols], cols, kind == NormKind::kNone);
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaInputs, AreTransformedAsOnTheHost) {
  std::mt19937 random(2);
  const int rows = 2, cols = 96;
  const std::vector<float> x = random_rows(rows, cols, random);
  std::vector<InputTransform> transforms(7);
  for (int i = 0; i < cols; ++i) {
    transforms[0].factors.push_back(1 + 0.01f * static_cast<float>(i));
    transforms[1].order.push_back((i * 35 + 7) % cols);
  }
  transforms[2] = {.factors = transforms[0].factors, .order = transforms[1].order};
  transforms[3].rotation.size = 32;
  transforms[4] = {.factors = transforms[0].factors, .rotation = {.size = 16}};
  for (int i = 0; i < 32; ++i) transforms[3].rotation.signs.push_back(random() % 2 == 0 ? 1.0f : -1.0f);
  transforms[5] = transforms[3];
  transforms[5].rotation.signs_last = true;
  transforms[6].rotation.size = 12;
  for (int i = 0; i < 12 * 12; ++i) transforms[6].rotation.matrix.push_back(random() % 2 == 0 ? 1.0f : -1.0f);

  const PlacedRows on_device(*device_, rows, cols, x);
  const InputBuffers::Need need{rows, cols};
  InputBuffers inputs(*device_, {&need, 1}, {.transforms = true});
  const Linear plain{.weight = describe_packed(TensorType::BF16, 16, cols)};
  for (size_t t = 0; t < transforms.size(); ++t) {
    Linear linear = plain;
    linear.transform = std::make_shared<const InputTransform>(transforms[t]);
    const Inputs prepared =
        inputs.prepare(stream_, Activations::kF32, on_device.rows(), {}, rows, {&linear, &plain, &linear});
    stream_.finish();
    const auto got = read(prepared.of(Activations::kF32, linear), cols, {0, 1}),
               untouched = read(prepared.of(Activations::kF32, plain), cols, {0, 1});
    for (int r = 0; r < rows; ++r) {
      SCOPED_TRACE(t);
      std::vector<float> expected(cols);
      transform_row(transforms[t], &x[r * cols], cols, expected.data());
      expect_inputs(got[r], Activations::kF32, expected.data(), cols, true);
      expect_inputs(untouched[r], Activations::kF32, &x[r * cols], cols, true);
    }
  }
}

TEST_F(CudaInputs, KeepInfinitiesAndLargeNumbersApart) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLargest = std::numeric_limits<float>::max();
  const std::vector<float> x = {kInfinity, -kInfinity, kLargest, -kLargest, std::nanf(""), 0x1p-120f, 1 + 0x1p-23f};
  const int cols = static_cast<int>(x.size());
  const PlacedRows on_device(*device_, 1, cols, x);
  const InputBuffers::Need need{1, cols};
  InputBuffers inputs(*device_, {&need, 1}, {});
  const Linear linear{.weight = describe_packed(TensorType::BF16, 16, cols)};
  const Inputs prepared = inputs.prepare(stream_, Activations::kF32, on_device.rows(), {}, 1, {&linear});
  stream_.finish();
  const ReadRow row = read(prepared.of(Activations::kF32, linear), cols, {0})[0];
  for (int k = 0; k < cols; ++k) {
    const float got = row.terms[0][k] + (row.terms[1][k] + row.terms[2][k]);
    if (std::isnan(x[k])) {
      EXPECT_TRUE(std::isnan(got));
    } else {
      EXPECT_EQ(got, x[k]) << k;
    }
  }
}

TEST_F(CudaInputs, OfHeadsAreTheirColumns) {
  std::mt19937 random(3);
  const int rows = 3, heads = 2, step = 50, cols = 40;
  const std::vector<float> x = random_rows(rows, heads * step, random);
  const PlacedRows on_device(*device_, rows, heads * step, x);
  const InputBuffers::Need need{InputBuffers::head_rows(heads, rows), cols};
  InputBuffers inputs(*device_, {&need, 1}, {});
  const std::vector<Linear> matrices(heads, {.weight = describe_packed(TensorType::BF16, 16, cols)});
  const auto in =
      inputs.prepare_heads(stream_, Activations::kBf16,
                           {.matrices = matrices, .x = on_device.rows(), .x_step = step, .y = {}, .y_step = 0}, rows);
  stream_.finish();
  for (int h = 0; h < heads; ++h) {
    const auto got = read(in.first.of(Activations::kBf16, matrices[0]), cols,
                          {h * in.padded_rows, h * in.padded_rows + 1, h * in.padded_rows + 2});
    for (int r = 0; r < rows; ++r)
      expect_inputs(got[r], Activations::kBf16, &x[r * heads * step + h * step], cols, true);
  }
}

}  // namespace
}  // namespace quire::cuda
