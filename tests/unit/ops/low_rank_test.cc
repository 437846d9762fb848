// Low-rank changes of linears: all products together give the bits that each gives alone.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/memory.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

constexpr int kStepRows = 40, kInputs = 70, kOutputs = 50;

std::vector<float> drawn_floats(unsigned seed, size_t count) {
  std::mt19937 random(seed);
  std::vector<float> x(count);
  for (float& value : x) value = static_cast<float>(random() % 2001) / 1000.0f - 1;
  return x;
}

// A change in float32, with the numbers that it was packed of.
struct Change {
  std::vector<float> a, b;
  LargeBuffer packed_a, packed_b;
  LowRank low;

  Change(unsigned seed, int rank, float scale)
      : a(drawn_floats(seed, static_cast<size_t>(rank * kInputs))),
        b(drawn_floats(seed + 1, static_cast<size_t>(kOutputs * rank))) {
    low.scale = scale;
    const auto pack = [](PackedMatrix& m, int rows, int cols, const std::vector<float>& from, LargeBuffer& to) {
      m = describe_packed(TensorType::F32, rows, cols);
      to = LargeBuffer(m.bytes());
      pack_panels(m, TensorType::F32, std::as_bytes(std::span(from)), to.data(), 0, m.panels());
      m.data = to.data();
    };
    pack(low.down.weight, rank, kInputs, a, packed_a);
    pack(low.up.weight, kOutputs, rank, b, packed_b);
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

TEST(LowRank, ProductsTogetherGiveTheBitsOfEachAlone) {
  const Change one(1, 3, 0.5f), two(2, 33, 2.0f);
  const OperationLimits limits{.max_rows = kStepRows, .inputs = {{kStepRows, kInputs}, {kMostChanged * kStepRows, 33}}};
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
