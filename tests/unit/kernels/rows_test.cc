// Norms, gates and the functions of routers: every kernel set gives the reference's bits for odd sizes and extreme
// numbers, and the reference the values of the formulas.

#include "kernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/lanes.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kSizes[] = {1, 2, 15, 16, 17, 31, 32, 64, 100, 257};
constexpr NormKind kNorms[] = {NormKind::kNone, NormKind::kRms, NormKind::kLayer, NormKind::kL2};

std::vector<float> random_rows(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.3f, 2);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// Numbers of all magnitudes and kinds.
std::vector<float> extreme_floats() {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          kInfinity,
                          -kInfinity,
                          std::nanf(""),
                          -std::nanf(""),
                          0x1p-149f,
                          -0x1p-130f,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(),
                          87.34f,
                          -87.34f,
                          88.0f,
                          -88.1f,
                          20.0f,
                          0.625f,
                          -0.625f,
                          0.9f,
                          4.0f};
  for (float size = 0x1p-40f; size < 300; size *= 1.013f) x.push_back(size), x.push_back(-size);
  return x;
}

::testing::AssertionResult same_rows(const std::vector<float>& expected, const std::vector<float>& got) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
    if (std::memcmp(&expected[i], &got[i], sizeof(float)) != 0)
      return ::testing::AssertionFailure() << "at " << i << ": " << got[i] << " instead of " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

class Rows : public ::testing::TestWithParam<const KernelSet*> {};

struct NormCase {
  NormKind kind;
  int size, groups;
  bool weighted, biased, own_weights, accumulate, in_place;
};
constexpr int kRows = 3;

std::vector<float> normalized(const KernelSet& kernels, const NormCase& c, std::vector<float> x) {
  const size_t cols = static_cast<size_t>(c.size * c.groups), stride = cols + 3;
  x.resize(kRows * stride);
  const auto weight = random_rows(cols, 2), bias = random_rows(cols, 3);
  std::vector<float> y = c.in_place ? x : random_rows(kRows * stride, 4);
  kernels.normalize({.kind = c.kind,
                     .x = c.in_place ? y.data() : x.data(),
                     .x_stride = stride,
                     .y = y.data(),
                     .y_stride = stride,
                     .size = c.size,
                     .groups = c.groups,
                     .weight = c.weighted ? weight.data() : nullptr,
                     .bias = c.biased ? bias.data() : nullptr,
                     .weight_stride = c.own_weights ? static_cast<size_t>(c.size) : 0,
                     .epsilon = 1e-5f,
                     .scale = c.accumulate ? 0.7f : 1.0f,
                     .accumulate = c.accumulate},
                    0, kRows);
  return y;
}

TEST_P(Rows, NormalizeToTheReferencesBits) {
  for (const NormKind kind : kNorms) {
    for (const int size : kSizes) {
      for (int options = 0; options < 32; ++options) {
        const NormCase c{kind,
                         size,
                         options % 3 + 1,
                         (options & 1) != 0,
                         (options & 2) != 0,
                         (options & 4) != 0,
                         (options & 8) != 0,
                         (options & 16) != 0};
        const auto x = random_rows(static_cast<size_t>(kRows * (size * c.groups + 3)), 1);
        ASSERT_TRUE(same_rows(normalized(reference_kernels(), c, x), normalized(*GetParam(), c, x)))
            << "norm " << static_cast<int>(kind) << " size " << size << " options " << options;
      }
    }
  }
}

TEST_P(Rows, NormalizeExtremeNumbersToTheReferencesBits) {
  for (const NormKind kind : kNorms) {
    for (const float extreme : {kInfinity, -kInfinity, std::nanf(""), 1e30f, 1e-30f, 0x1p-140f, 0.0f}) {
      for (const int size : {16, 37}) {
        auto x = random_rows(static_cast<size_t>(kRows * (size + 3)), 1);
        x[5] = extreme;
        std::fill_n(x.begin() + size + 3, size, extreme);
        const NormCase c{kind, size, 1, true, true, false, false, false};
        ASSERT_TRUE(same_rows(normalized(reference_kernels(), c, x), normalized(*GetParam(), c, x)))
            << "norm " << static_cast<int>(kind) << " size " << size << " with " << extreme;
      }
    }
  }
}

// What quantize() does with a norm's weight on the way.
TEST_P(Rows, NormalizeAsTheFusedNormDoes) {
  for (const int cols : {32, 77, 576}) {
    const auto x = random_rows(static_cast<size_t>(cols), 5), weight = random_rows(static_cast<size_t>(cols), 6);
    std::vector<float> y(x.size());
    GetParam()->normalize({.x = x.data(),
                           .x_stride = x.size(),
                           .y = y.data(),
                           .y_stride = y.size(),
                           .size = cols,
                           .weight = weight.data(),
                           .epsilon = 1e-6f},
                          0, 1);
    std::vector<FloatBlock> blocks(static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs));
    GetParam()->quantize({.x = x.data(),
                          .x_stride = x.size(),
                          .cols = cols,
                          .norm_weight = weight.data(),
                          .epsilon = 1e-6f,
                          .to = Activations::kF32,
                          .out = reinterpret_cast<std::byte*>(blocks.data()),
                          .out_stride = blocks.size() * sizeof(FloatBlock)},
                         0, 1);
    for (size_t i = 0; i < y.size(); ++i) {
      const float fused = blocks[i / kBlockInputs].x[i % kBlockInputs];
      ASSERT_EQ(std::memcmp(&fused, &y[i], sizeof fused), 0) << i;
    }
  }
}

TEST(RowsReference, NormalizeByTheFormulas) {
  for (const NormKind kind : kNorms) {
    for (const int size : kSizes) {
      const NormCase c{kind, size, 2, true, true, true, true, false};
      const size_t cols = static_cast<size_t>(2 * size), stride = cols + 3;
      const auto x = random_rows(kRows * stride, 1), weight = random_rows(cols, 2), bias = random_rows(cols, 3),
                 before = random_rows(kRows * stride, 4), got = normalized(reference_kernels(), c, x);
      for (size_t begin = stride; begin < stride + cols; begin += static_cast<size_t>(size)) {
        double sum = 0, squares = 0, mean = 0, factor = 1;
        for (int i = 0; i < size; ++i) sum += x[begin + static_cast<size_t>(i)];
        if (kind == NormKind::kLayer) mean = sum / size;
        for (int i = 0; i < size; ++i) squares += std::pow(x[begin + static_cast<size_t>(i)] - mean, 2);
        if (kind == NormKind::kRms || kind == NormKind::kLayer) factor = 1 / std::sqrt(squares / size + 1e-5);
        if (kind == NormKind::kL2) factor = 1 / std::sqrt(squares + 1e-5);
        for (size_t i = begin; i < begin + static_cast<size_t>(size); ++i) {
          const double value = (x[i] - mean) * factor * weight[i - stride] + bias[i - stride];
          ASSERT_NEAR(got[i], before[i] + 0.7 * value, 2e-5) << "norm " << static_cast<int>(kind) << " size " << size;
        }
      }
    }
  }
}

std::vector<float> gated(const KernelSet& kernels, Nonlinearity f, const std::vector<float>& gate,
                         std::vector<float> y) {
  const auto cols = static_cast<int>(gate.size() / 2);
  kernels.multiply_gate({.y = y.data(),
                         .y_stride = gate.size() / 2,
                         .gate = gate.data(),
                         .gate_stride = gate.size() / 2,
                         .cols = cols,
                         .nonlinearity = f,
                         .alpha = 1.702f,
                         .limit = 7},
                        0, 2);
  return y;
}

// All numbers as gates of 1 (the function itself) and as factors.
TEST_P(Rows, MultiplyGatesToTheReferencesBits) {
  const auto numbers = extreme_floats();
  for (int f = 0; f <= static_cast<int>(Nonlinearity::kClampedSwiglu); ++f) {
    for (const size_t count : {numbers.size(), size_t{2}, size_t{30}, size_t{34}}) {
      const std::vector<float> gate(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(count / 2 * 2));
      auto reversed = gate;
      std::reverse(reversed.begin(), reversed.end());
      for (const auto& y : {std::vector<float>(gate.size(), 1.0f), reversed}) {
        ASSERT_TRUE(same_rows(gated(reference_kernels(), static_cast<Nonlinearity>(f), gate, y),
                              gated(*GetParam(), static_cast<Nonlinearity>(f), gate, y)))
            << "nonlinearity " << f << " of " << gate.size();
      }
    }
  }
}

TEST_P(Rows, ComputeFunctionsToTheReferencesBits) {
  const auto numbers = extreme_floats(), bias = random_rows(numbers.size(), 7), factor = random_rows(numbers.size(), 8);
  for (const size_t count : {numbers.size(), size_t{1}, size_t{16}, size_t{19}}) {
    const std::vector<float> x(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(count));
    const auto run = [&](const KernelSet& kernels, int which) {
      std::vector<float> y = x;
      if (which == 0) kernels.soft_cap(y.data(), static_cast<int>(count), 30.0f);
      if (which == 1) kernels.sigmoid(y.data(), static_cast<int>(count));
      if (which >= 2)
        kernels.softplus({.x = y.data(),
                          .x_stride = count,
                          .y = y.data(),
                          .y_stride = count,
                          .cols = static_cast<int>(count),
                          .bias = which > 2 ? bias.data() : nullptr,
                          .factor = which > 3 ? factor.data() : nullptr},
                         0, 1);
      return y;
    };
    for (int which = 0; which < 5; ++which)
      ASSERT_TRUE(same_rows(run(reference_kernels(), which), run(*GetParam(), which))) << which << " of " << count;
  }
}

TEST_P(Rows, ComputeSoftmaxToTheReferencesBits) {
  for (const int size : kSizes) {
    for (const float extreme : {0.0f, 200.0f, -kInfinity, kInfinity, std::nanf("")}) {
      auto expected = random_rows(static_cast<size_t>(size), 9);
      if (extreme != 0) expected[static_cast<size_t>(size / 2)] = extreme;
      auto got = expected;
      reference_kernels().softmax(expected.data(), size);
      GetParam()->softmax(got.data(), size);
      ASSERT_TRUE(same_rows(expected, got)) << size << " with " << extreme;
      if (std::isnan(extreme) || extreme == kInfinity) {
        EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](float y) { return std::isnan(y); })) << size;
      }
    }
  }
}

TEST(RowsReference, ComputesSoftmaxSoftplusAndSoftCapByTheFormulas) {
  const auto x = random_rows(100, 9);
  auto y = x;
  reference_kernels().softmax(y.data(), 100);
  double total = 0;
  for (const float v : x) total += std::exp(double{v});
  for (size_t i = 0; i < 100; ++i) ASSERT_NEAR(y[i], std::exp(double{x[i]}) / total, 1e-6 * y[i]);

  const auto bias = random_rows(100, 10), factor = random_rows(100, 11);
  reference_kernels().softplus({.x = x.data(),
                                .x_stride = 50,
                                .y = y.data(),
                                .y_stride = 50,
                                .cols = 50,
                                .bias = bias.data(),
                                .factor = factor.data()},
                               0, 2);
  for (size_t i = 0; i < 100; ++i)
    ASSERT_NEAR(y[i], std::log1p(std::exp(double{x[i]} + bias[i % 50])) * factor[i % 50], 1e-5);

  y = x;
  reference_kernels().soft_cap(y.data(), 100, 3.0f);
  for (size_t i = 0; i < 100; ++i) ASSERT_NEAR(y[i], 3 * std::tanh(x[i] / 3.0), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Rows, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
