#include "ops/cpu/tuning.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/compute.h"
#include "unit/kernels/random_panels.h"
#include "unit/ops/two_loops.h"

namespace quire {
namespace {

using testing::kFastLoop;
using testing::kSlowLoop;

TEST(Tuning, KeepsALoopForEachKindOfLinear) {
  std::mt19937 random(1);
  const auto narrow = testing::random_matrix(TensorType::Q4_0, 32, 64, random),
             wide = testing::random_matrix(TensorType::Q4_0, 32, 128, random),
             finer = testing::random_matrix(TensorType::Q6_K, 32, 256, random);
  Tuning tuning;
  EXPECT_EQ(tuning.loop(narrow.matrix, Activations::kInt8, 1), nullptr);
  tuning.choose(linear_kind(narrow.matrix, Activations::kInt8, 3), kFastLoop);
  tuning.choose(linear_kind(wide.matrix, Activations::kInt8, 3), kSlowLoop);
  for (const int rows : {3, 4}) {
    ASSERT_NE(tuning.loop(narrow.matrix, Activations::kInt8, rows), nullptr) << rows;
    EXPECT_EQ(*tuning.loop(narrow.matrix, Activations::kInt8, rows), kFastLoop) << rows;
    EXPECT_EQ(*tuning.loop(wide.matrix, Activations::kInt8, rows), kSlowLoop) << rows;
  }
  for (const int rows : {1, 2, 5}) EXPECT_EQ(tuning.loop(narrow.matrix, Activations::kInt8, rows), nullptr) << rows;
  EXPECT_EQ(tuning.loop(narrow.matrix, Activations::kBf16, 3), nullptr);
  EXPECT_EQ(tuning.loop(finer.matrix, Activations::kInt8, 3), nullptr);
  tuning.choose(linear_kind(narrow.matrix, Activations::kInt8, 4), kSlowLoop);
  EXPECT_EQ(*tuning.loop(narrow.matrix, Activations::kInt8, 3), kSlowLoop);
}

TEST(Tuning, TreatsMoreRowsThanItMeasuresAlike) {
  std::mt19937 random(2);
  const auto weights = testing::random_matrix(TensorType::Q4_0, 32, 64, random);
  Tuning tuning;
  tuning.choose(linear_kind(weights.matrix, Activations::kInt8, kMostTunedRows), kFastLoop);
  EXPECT_NE(tuning.loop(weights.matrix, Activations::kInt8, 100 * kMostTunedRows), nullptr);
  EXPECT_EQ(tuning.loop(weights.matrix, Activations::kInt8, kMostTunedRows / 2), nullptr);
}

TEST(Tuning, MeasuresKindsThatHaveAChoiceAndFindsTheFastestLoop) {
  const KernelSet kernels = testing::two_loop_kernels();
  Team team(2);
  const Compute compute{kernels, team, Activations::kInt8};
  std::mt19937 random(3);
  const auto a = testing::random_matrix(TensorType::Q4_0, 160, 64, random),
             b = testing::random_matrix(TensorType::Q8_0, 48, 64, random);
  const std::vector<TunedMatrix> matrices{
      {&a.matrix, Activations::kInt8}, {&b.matrix, Activations::kInt8}, {&a.matrix, Activations::kInt8}};
  size_t reports = 0;
  const auto measured = measure_loops(
      compute, matrices, [](const LinearKind& kind) { return kind.rows != 2; }, 0.1,
      [&](size_t done, size_t total) {
        EXPECT_LT(done, total);
        ++reports;
      });
  EXPECT_EQ(reports, 2u);
  ASSERT_EQ(measured.size(), 4u);  // two formats, at 1 and 4 rows
  std::set<std::string> names;
  for (const MeasuredKind& kind : measured) {
    names.insert(name(kind.kind));
    ASSERT_EQ(kind.loops.size(), 2u);
    EXPECT_EQ(kind.best, 1u) << name(kind.kind);
    EXPECT_GT(kind.loops[1].rate, kind.loops[0].rate);
    EXPECT_TRUE(kind.kind.rows == 1 || kind.kind.rows == 4);
  }
  EXPECT_EQ(names.size(), 4u);
}

// Two loops that take turns in a fixed order would each meet the same one of two matrices.
TEST(Tuning, MeasuresEachLoopWithEachMatrix) {
  static std::set<std::pair<const PackedMatrix*, const LinearLoop*>> met;
  met.clear();
  KernelSet kernels = testing::two_loop_kernels();
  kernels.linear = [](const LinearArgs& a, int, int, int, int) { met.insert({a.weights, a.loop}); };
  Team team(1);
  std::mt19937 random(5);
  const auto a = testing::random_matrix(TensorType::Q4_0, 32, 64, random),
             b = testing::random_matrix(TensorType::Q4_0, 160, 64, random);
  const std::vector<TunedMatrix> matrices{{&a.matrix, Activations::kInt8}, {&b.matrix, Activations::kInt8}};
  measure_loops({kernels, team, Activations::kInt8}, matrices, [](const LinearKind& kind) { return kind.rows == 1; },
                0.01, {});
  EXPECT_EQ(met.size(), 4u);
}

TEST(Tuning, NamesLoopsOfEverySetApart) {
  std::mt19937 random(4);
  const auto weights = testing::random_matrix(TensorType::Q4_0, 64, 128, random);
  for (const KernelSet* kernels : available_kernels()) {
    for (const Activations inputs : {Activations::kInt8, Activations::kBf16}) {
      for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
        const auto loops = loops_of(*kernels, weights.matrix, linear_kind(weights.matrix, inputs, rows));
        ASSERT_GE(loops.size(), 1u);
        std::set<std::string> names;
        for (const LinearLoop& loop : loops) names.insert(name(loop));
        EXPECT_EQ(names.size(), loops.size()) << kernels->name << ", " << rows << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace quire
