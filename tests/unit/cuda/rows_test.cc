// Operations on rows on a device, next to the CPU's with its reference kernels.
#include "cuda/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/team.h"
#include "cuda/device.h"
#include "device_memory.h"
#include "kernels/kernels.h"
#include "ops/cpu/rows.h"

namespace quire::cuda {
namespace {

class RowOperations : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = open(0);
  Stream stream_{*device_, false};
  Team team_{1};
  Compute cpu_{reference_kernels(), team_, Activations::kF32};

  // The device's rows after the launches.
  std::vector<float> result(const TwinRows& x) {
    stream_.finish();
    return x.download();
  }
};

void expect_same_bits(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << what << ": number " << i << " is " << got[i] << ", not " << want[i];
  }
}

// Within a distance of `most` relative to the largest number.
void expect_close(std::span<const float> got, std::span<const float> want, double most, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const float w : want) largest = std::max<double>(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], most * largest) << what << ": number " << i;
}

// Columns that are no multiple of four, more than one block has, and those of one block.
constexpr int kOddCols[] = {1, 7, 64, 530};

TEST_F(RowOperations, NormalizeAsTheCpu) {
  struct Case {
    int cols, groups;
    bool shared_weights;
  };
  for (const Case& c : {Case{7, 1, true},
                        {96, 1, true},
                        {120, 4, true},
                        {120, 4, false},
                        {33, 3, false},
                        {2100, 1, true},
                        {9001, 1, true},
                        {2062, 2, false}}) {
    const int size = c.cols / c.groups;
    for (const NormKind kind : {NormKind::kNone, NormKind::kRms, NormKind::kLayer, NormKind::kL2}) {
      for (const bool accumulate : {false, true}) {
        TwinRows x(*device_, 3, c.cols, 1), to(*device_, 3, c.cols, 2), weights(*device_, 2, c.cols, 3);
        // A mean that matters.
        for (float& value : x.numbers()) value += 0.5f;
        x.upload();
        const auto norm = [&](const Rows& weight_rows) {
          return HeadNorm{.norm = {.kind = kind,
                                   .epsilon = 1e-5f,
                                   .weight = weight_rows.row(0),
                                   .bias = kind == NormKind::kLayer ? weight_rows.row(1) : nullptr},
                          .groups = c.groups,
                          .weight_stride = c.shared_weights ? 0 : static_cast<size_t>(size)};
        };
        normalize(stream_, x.on_device(), norm(weights.on_device()), {to.on_device(), 0.75f, accumulate}, 3);
        quire::normalize(cpu_, x.host(), norm(weights.host()), {to.host(), 0.75f, accumulate}, 3);
        expect_close(result(to), to.numbers(), 2e-6,
                     "cols " + std::to_string(c.cols) + ", kind " + std::to_string(static_cast<int>(kind)));
      }
    }
  }
}

TEST_F(RowOperations, NormalizeInPlaceAndWithoutWeights) {
  for (const int cols : {50, 1500}) {
    TwinRows x(*device_, 2, cols, 4);
    const NormView norm{.kind = NormKind::kRms, .epsilon = 1e-6f};
    normalize(stream_, x.on_device(), norm, {x.on_device()}, 2);
    quire::normalize(cpu_, x.host(), norm, {x.host()}, 2);
    expect_close(result(x), x.numbers(), 2e-6, "in place");
  }
}

// Numbers that start between multiples of 16 bytes.
TEST_F(RowOperations, NormalizeColumnsThatAreNotAligned) {
  TwinRows x(*device_, 2, 1200, 5), again(*device_, 2, 1200, 5);
  const NormView norm{.kind = NormKind::kRms, .epsilon = 1e-6f};
  // The same numbers, aligned and not.
  for (int row = 0; row < 2; ++row) std::copy_n(x.host().row(row) + 3, 1100, again.host().row(row) + 4);
  again.upload();
  normalize(stream_, x.on_device().columns(3, 1100), norm, {x.on_device().columns(3, 1100)}, 2);
  normalize(stream_, again.on_device().columns(4, 1100), norm, {again.on_device().columns(4, 1100)}, 2);
  const std::vector<float> a = result(x), b = result(again);
  for (size_t row = 0; row < 2; ++row) {
    const size_t at = row * x.host().stride;
    EXPECT_EQ(std::memcmp(&a[at + 3], &b[at + 4], 1100 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(&a[at], x.host().row(static_cast<int>(row)), 3 * sizeof(float)), 0);
    EXPECT_EQ(a[at + 1103], x.host().row(static_cast<int>(row))[1103]);
  }
}

TEST_F(RowOperations, GiveARowTheSameBitsAmongAnyOthers) {
  for (const int cols : {120, 2100}) {
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      TwinRows together(*device_, 9, cols, 6), alone(*device_, 9, cols, 6);
      const NormView norm{.kind = kind, .epsilon = 1e-6f};
      normalize(stream_, together.on_device(), norm, {together.on_device()}, 9);
      for (int row = 0; row < 9; row += row == 0 ? 1 : 4)
        normalize(stream_, alone.on_device().from(row), norm, {alone.on_device().from(row)}, row == 0 ? 1 : 4);
      const std::vector<float> a = result(together), b = result(alone);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << cols;
    }
  }
}

TEST_F(RowOperations, AddAndScaleWithTheCpusBits) {
  for (const int cols : kOddCols) {
    TwinRows x(*device_, 3, cols, 7), to(*device_, 3, cols, 8), gate(*device_, 3, 1, 9);
    add(stream_, x.on_device(), 0.3f, to.on_device(), 3);
    quire::add(cpu_, x.host(), 0.3f, to.host(), 3);
    scale(stream_, to.on_device(), 1.7f, 2);
    quire::scale(cpu_, to.host(), 1.7f, 2);
    gate.numbers()[0] = std::numeric_limits<float>::quiet_NaN();
    gate.upload();
    add_gated(stream_, x.on_device(), gate.on_device(), 0.9f, to.on_device(), 3);
    quire::add_gated(cpu_, x.host(), gate.host(), 0.9f, to.host(), 3);
    expect_same_bits(result(to), to.numbers(), std::to_string(cols) + " columns");
  }
}

TEST_F(RowOperations, CombineAnyNumberOfInputs) {
  for (const int inputs : {1, 3, 9}) {
    for (const bool accumulate : {false, true}) {
      std::vector<std::unique_ptr<TwinRows>> x;
      std::vector<Rows> of_host, of_device;
      for (int i = 0; i < inputs; ++i) {
        x.push_back(std::make_unique<TwinRows>(*device_, 2, 37, 10 + i));
        of_host.push_back(x.back()->host());
        of_device.push_back(x.back()->on_device());
      }
      TwinRows coefficients(*device_, 2, inputs, 30), to(*device_, 2, 37, 31);
      combine(stream_, of_device, coefficients.on_device(), {to.on_device(), 0.5f, accumulate}, 2);
      quire::combine(cpu_, of_host, coefficients.host(), {to.host(), 0.5f, accumulate}, 2);
      expect_same_bits(result(to), to.numbers(), std::to_string(inputs) + " inputs");
    }
  }
}

TEST_F(RowOperations, ApplyNonlinearFunctionsWithTheCpusBits) {
  for (const int cols : kOddCols) {
    for (const Nonlinearity f : {Nonlinearity::kNone, Nonlinearity::kSilu, Nonlinearity::kGelu, Nonlinearity::kGeluTanh,
                                 Nonlinearity::kRelu, Nonlinearity::kRelu2, Nonlinearity::kSigmoid}) {
      TwinRows y(*device_, 2, cols, 11), gate(*device_, 2, cols, 12);
      for (float& g : gate.numbers()) g *= 3;
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const float special[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f, 1e-40f,
                               -100,      100};
      for (size_t i = 0; i < std::min<size_t>(std::size(special), static_cast<size_t>(cols)); ++i)
        gate.numbers()[i] = special[i];
      gate.upload();
      multiply_gate(stream_, y.on_device(), gate.on_device(), f, 2);
      quire::multiply_gate(cpu_, y.host(), gate.host(), f, 2);
      expect_same_bits(result(y), y.numbers(), "nonlinearity " + std::to_string(static_cast<int>(f)));
      tanh(stream_, gate.on_device(), 2);
      quire::tanh(cpu_, gate.host(), 2);
      soft_cap(stream_, y.on_device(), 5, 2);
      quire::soft_cap(cpu_, y.host(), 5, 2);
      expect_same_bits(result(gate), gate.numbers(), "tanh");
      expect_same_bits(result(y), y.numbers(), "soft cap");
    }
  }
}

TEST_F(RowOperations, CutAndMatchByStatisticsOfARow) {
  for (const int cols : {5, 300}) {
    TwinRows x(*device_, 3, cols, 13), like(*device_, 3, cols + 2, 14);
    cut_below(stream_, x.on_device(), 0.4f, 3);
    quire::cut_below(cpu_, x.host(), 0.4f, 3);
    expect_close(result(x), x.numbers(), 1e-6, "cut below");
    for (const float value : result(x)) EXPECT_FALSE(std::signbit(value) && value == 0);
    std::ranges::fill(std::span(x.host().row(1), static_cast<size_t>(cols)), 1e-9f);  // a magnitude near zero
    x.upload();
    match_magnitude(stream_, x.on_device(), like.on_device(), 3);
    quire::match_magnitude(cpu_, x.host(), like.host(), 3);
    expect_close(result(x), x.numbers(), 1e-6, "match magnitude");
  }
}

TEST_F(RowOperations, CopyRowsAndHeads) {
  for (const int cols : kOddCols) {
    TwinRows x(*device_, 4, cols, 15), to(*device_, 4, cols, 16);
    copy(stream_, x.on_device(), to.on_device(), 2);
    quire::copy(cpu_, x.host(), to.host(), 2);
    const std::vector<int32_t> rows = {3, 3, 1};
    gather(stream_, x.on_device(), rows, to.on_device().from(1));
    quire::gather(cpu_, x.host(), rows, to.host().from(1));
    expect_same_bits(result(to), to.numbers(), std::to_string(cols) + " columns");
  }
  for (const HeadColumns& heads :
       {HeadColumns{.heads = 3, .count = 8, .from = 4, .from_stride = 16, .to = 0, .to_stride = 12},
        {.heads = 5, .count = 3, .from = 1, .from_stride = 6, .to = 2, .to_stride = 7}}) {
    TwinRows x(*device_, 2, 48, 17), to(*device_, 2, 40, 18);
    copy_heads(stream_, x.on_device(), heads, to.on_device(), 2);
    quire::copy_heads(cpu_, x.host(), heads, to.host(), 2);
    expect_same_bits(result(to), to.numbers(), std::to_string(heads.heads) + " heads");
  }
}

TEST_F(RowOperations, UploadFewAndManyNumbers) {
  for (const int count : {1, 4096, 5000, (1 << 18) + 5}) {
    TwinRows to(*device_, 1, count, 19), from(*device_, 1, count, 20);
    scale(stream_, to.on_device(), 0, 1);  // before it in order
    upload(stream_, from.numbers().first(static_cast<size_t>(count)), to.on_device().data);
    const std::vector<float> got = result(to);
    EXPECT_EQ(std::memcmp(got.data(), from.numbers().data(), static_cast<size_t>(count) * sizeof(float)), 0) << count;
  }
}

}  // namespace
}  // namespace quire::cuda
