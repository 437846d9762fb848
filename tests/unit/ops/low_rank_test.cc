// Low-rank changes of linears: all products together give the bits that each gives alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/memory.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

constexpr int kStepRows = 40, kInputs = 70, kOutputs = 50, kFoldedOutputs = 128;

std::vector<float> drawn_floats(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1;
  return x;
}

// The rows of b [outputs, rank], `folds` of them next to each other in 32 columns.
std::vector<float> folded(const std::vector<float>& b, int outputs, int rank, int folds) {
  std::vector<float> all(static_cast<size_t>(outputs / folds * kBlockInputs));
  for (int output = 0; output < outputs; ++output) {
    const int row = output % (outputs / folds), column = output / (outputs / folds) * (kBlockInputs / folds);
    std::copy_n(b.begin() + output * rank, rank, all.begin() + row * kBlockInputs + column);
  }
  return all;
}

// A change in float32, with the numbers that it was packed of.
struct Change {
  std::vector<float> a, b;
  LargeBuffer packed_a, packed_b;
  LowRank low;

  Change(unsigned seed, int rank, float scale, int outputs = kOutputs, int folds = 1)
      : a(drawn_floats(seed, static_cast<size_t>(rank * kInputs))),
        b(drawn_floats(seed + 1, static_cast<size_t>(outputs * rank))) {
    low.scale = scale;
    low.folds = folds;
    const auto pack = [](PackedMatrix& m, int rows, int cols, const std::vector<float>& from, LargeBuffer& to) {
      m = describe_packed(TensorType::F32, rows, cols);
      to = LargeBuffer(m.bytes());
      pack_panels(m, TensorType::F32, std::as_bytes(std::span(from)), to.data(), 0, m.panels());
      m.data = to.data();
    };
    pack(low.down.weight, rank, kInputs, a, packed_a);
    if (folds > 1) {
      pack(low.up.weight, outputs / folds, kBlockInputs, folded(b, outputs, rank, folds), packed_b);
    } else {
      pack(low.up.weight, outputs, rank, b, packed_b);
    }
  }

  double result(const float* x, int output) const {
    const int rank = low.down.weight.rows;
    double sum = 0;
    for (int r = 0; r < rank; ++r) {
      double inner = 0;
      for (int i = 0; i < kInputs; ++i) inner += double{a[static_cast<size_t>(r * kInputs + i)]} * double{x[i]};
      sum += inner * double{b[static_cast<size_t>(output * rank + r)]};
    }
    return sum * double{low.scale};
  }
};

struct Buffer {
  std::vector<float> values;
  Rows rows;
  Buffer(int count, int cols, unsigned seed)
      : values(drawn_floats(seed, static_cast<size_t>(count) * row_stride(cols))),
        rows{values.data(), cols, row_stride(cols)} {}
};

std::vector<OperationLimits::InputRows> inputs_for(int rank) {
  std::vector<OperationLimits::InputRows> inputs{{kStepRows, kInputs}};
  for (const auto& kept : low_rank_inputs(kStepRows, rank)) inputs.push_back(kept);
  return inputs;
}

TEST(LowRank, FoldsAsFarAsRankAndOutputsAllow) {
  EXPECT_EQ(low_rank_folds(128, 8), 4);
  EXPECT_EQ(low_rank_folds(128, 9), 2);
  EXPECT_EQ(low_rank_folds(128, 16), 2);
  EXPECT_EQ(low_rank_folds(128, 17), 1);
  EXPECT_EQ(low_rank_folds(96, 8), 2);
  EXPECT_EQ(low_rank_folds(48, 8), 1);
}

TEST(LowRank, FoldedMatricesGiveTheBitsOfTheOthers) {
  constexpr int kRanks[] = {1, 8, 13, 16};
  for (const int threads : {1, 3}) {
    Team team(threads);
    CpuBackend cpu("auto", team);
    const OperationLimits limits{.max_rows = kStepRows, .inputs = inputs_for(16)};
    const auto ops = cpu.operations(Activations::kInt8, limits);
    for (const int rank : kRanks) {
      const int folds = low_rank_folds(kFoldedOutputs, rank);
      ASSERT_GT(folds, 1);
      const Change plain(1, rank, 0.5f, kFoldedOutputs), folded(1, rank, 0.5f, kFoldedOutputs, folds);
      Buffer x(kStepRows, kInputs, 5), inner(kMostChanged * kStepRows, 16, 6), y(kStepRows, kFoldedOutputs, 7);
      Buffer y_folded(kStepRows, kFoldedOutputs, 7);
      // One row, several, and a row of its own between others.
      const auto products = [](const Change& change, const Rows& to) {
        return std::vector<LowRankProduct>{{&change.low, 1, 17, to, 1},
                                           {&change.low, 20, 1, to, -1},
                                           {&change.low, 21, 1, to, 2},
                                           {&change.low, 23, 17, to, 1}};
      };
      ops->add_low_rank(x.rows, {}, inner.rows, products(plain, y.rows));
      ops->add_low_rank(x.rows, {}, inner.rows, products(folded, y_folded.rows));
      ops->finish();
      EXPECT_EQ(y.values, y_folded.values) << "rank " << rank << ", " << threads << " threads";
    }
  }
}

TEST(LowRank, ProductsTogetherGiveTheBitsOfEachAlone) {
  const Change one(1, 3, 0.5f), two(2, 33, 2.0f);
  const OperationLimits limits{.max_rows = kStepRows, .inputs = inputs_for(33)};
  for (const int threads : {1, 3}) {
    Team team(threads);
    CpuBackend cpu("auto", team);
    const auto ops = cpu.operations(Activations::kInt8, limits);
    Buffer x(kStepRows, kInputs, 5), inner(kMostChanged * kStepRows, 33, 6);
    Buffer y(kStepRows, kOutputs, 7), z(kStepRows, kOutputs, 8), y_alone = y, z_alone = z;
    y_alone.rows.data = y_alone.values.data();
    z_alone.rows.data = z_alone.values.data();
    const Buffer before = y;
    // Rows that no adapter changes are between those of others, and one row is on its own.
    const auto products = [&](const Rows& first, const Rows& second) {
      return std::vector<LowRankProduct>{{&one.low, 1, 18, first, 1},
                                         {&two.low, 21, 1, first, -1},
                                         {&one.low, 22, 18, first, 1},
                                         {&two.low, 1, 18, second, 1}};
    };
    ops->add_low_rank(x.rows, {}, inner.rows, products(y.rows, z.rows));
    ops->Operations::add_low_rank(x.rows, {}, inner.rows, products(y_alone.rows, z_alone.rows));
    ops->finish();
    EXPECT_EQ(y.values, y_alone.values);
    EXPECT_EQ(z.values, z_alone.values);
    for (int row = 0; row < kStepRows; ++row) {
      const auto at = static_cast<ptrdiff_t>(row) * static_cast<ptrdiff_t>(row_stride(kOutputs));
      for (int output = 0; output < kOutputs; ++output) {
        double wanted = double{before.values[static_cast<size_t>(at + output)]};
        if ((row >= 1 && row < 19) || row >= 22) wanted += one.result(x.rows.row(row), output);
        if (row == 21) wanted -= two.result(x.rows.row(row), output);
        EXPECT_NEAR(double{y.values[static_cast<size_t>(at + output)]}, wanted, 1e-3) << row << " " << output;
      }
    }
  }
}

}  // namespace
}  // namespace quire
