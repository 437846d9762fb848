#include "cuda/linear/measure_variants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/emulated/device.h"
#include "unit/cuda/forwarding_device.h"
#include "unit/cuda/placed.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

using Choices = Backend::KernelChoices;

// A layer's projections: queries, keys and values of one type, and a gated product of another.
class MeasureVariants : public ::testing::Test {
 protected:
  static constexpr int kRows = 4;

  const Linear* linear(TensorType type, int outputs) {
    const auto weights = testing::random_matrix(type, outputs, 256, random_);
    placed_.push_back(std::make_unique<testing::PlacedMatrix>(device_, weights.matrix));
    linears_.push_back(std::make_unique<Linear>(Linear{.weight = placed_.back()->matrix}));
    return linears_.back().get();
  }
  void SetUp() override {
    for (int layer = 0; layer < 2; ++layer) {
      projections_.push_back(
          {.matrices = {linear(TensorType::Q4_0, 64), linear(TensorType::Q4_0, 16), linear(TensorType::Q4_0, 16)}});
      projections_.push_back({.matrices = {linear(TensorType::BF16, 48)}, .up = linear(TensorType::BF16, 48)});
    }
  }
  Choices measure(VariantTable& table, const Choices& known = {}) {
    return measure_variants(device_, table, projections_, Activations::kBf16, kRows, known, {});
  }
  // 1, 2 and 4 rows of both projections.
  static std::vector<LaunchKind> kinds() {
    std::vector<LaunchKind> all;
    for (const int rows : {1, 2, 4}) {
      all.push_back({.codes = Codes::kU4,
                     .form = ScaleForm::kHalf,
                     .halves = false,
                     .minima = false,
                     .gated = false,
                     .inputs = Activations::kBf16,
                     .panels = 6,
                     .blocks = 8,
                     .rows = rows});
      all.push_back(all.back());
      all.back().codes = Codes::kBf16, all.back().form = ScaleForm::kAny;
      all.back().gated = true, all.back().panels = 3;
    }
    return all;
  }

  EmulatedDevice device_{{}};
  std::mt19937 random_{1};
  std::vector<std::unique_ptr<testing::PlacedMatrix>> placed_;
  std::vector<std::unique_ptr<Linear>> linears_;
  std::vector<TunedProjection> projections_;
};

TEST_F(MeasureVariants, ChoosesAKernelForEachKind) {
  VariantTable table;
  const Choices measured = measure(table);
  EXPECT_EQ(measured.size(), kinds().size());
  for (const LaunchKind& kind : kinds()) {
    const LinearVariant chosen = table.find(kind);
    const std::vector<LinearVariant> others = variants_of(device_.facts(), kind);
    EXPECT_TRUE(chosen == LinearVariant{} || std::ranges::find(others, chosen) != others.end()) << name(kind);
    ASSERT_TRUE(measured.contains(name(kind))) << name(kind);
    EXPECT_EQ(measured.at(name(kind)), name(chosen));
  }
}

TEST_F(MeasureVariants, BelievesWhatIsKnown) {
  Choices known;
  for (const LaunchKind& kind : kinds()) known[name(kind)] = name(variants_of(device_.facts(), kind).back());
  VariantTable table;
  EXPECT_EQ(measure(table, known), Choices{});
  for (const LaunchKind& kind : kinds()) EXPECT_EQ(name(table.find(kind)), known[name(kind)]) << name(kind);
}

TEST_F(MeasureVariants, TakesTheUsualKernelInPlaceOfOneThatIsNoMore) {
  Choices known;
  for (const LaunchKind& kind : kinds()) known[name(kind)] = "a kernel of an earlier program";
  VariantTable table;
  EXPECT_EQ(measure(table, known), Choices{});
  for (const LaunchKind& kind : kinds()) EXPECT_EQ(table.find(kind), LinearVariant{}) << name(kind);
}

// A device on which one kernel does nothing.
class WithoutFewRows : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  using ForwardingDevice::run;
  void run(std::span<const Launch> launches) override {
    for (const Launch& launch : launches) {
      if (std::string_view(launch.entry->name) != "linear_of_few_rows") ForwardingDevice::run({&launch, 1});
    }
  }
};

TEST_F(MeasureVariants, LeavesOutKernelsThatComputeSomethingElse) {
  WithoutFewRows device(device_);
  VariantTable table;
  const Choices measured = measure_variants(device, table, projections_, Activations::kBf16, kRows, {}, {});
  for (const LaunchKind& kind : kinds()) {
    EXPECT_NE(table.find(kind).kernel, LinearKernel::kFewRows);
    EXPECT_NE(measured.at(name(kind)).find("; wrong: few rows, 2 panels"), std::string::npos)
        << measured.at(name(kind));
    EXPECT_EQ(measured.at(name(kind)).find("wrong: rows"), std::string::npos) << measured.at(name(kind));
  }
  VariantTable later;
  EXPECT_EQ(measure_variants(device_, later, projections_, Activations::kBf16, kRows, measured, {}), Choices{});
  for (const LaunchKind& kind : kinds()) EXPECT_EQ(name(later.find(kind)), name(table.find(kind)));
}

TEST(CudaBackend, MeasuresNothingOnTheEmulatedDevice) {
  EXPECT_EQ(CudaBackend(std::make_unique<EmulatedDevice>(EmulatedOptions{})).tuned_as(), "");
}

}  // namespace
}  // namespace quire::cuda
