#include "kernels/kernels.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/linear.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace quire {
namespace {

std::atomic<int> odd_begins;

// Instead of a product, counts the visits to each panel of each row.
void visit(const LinearArgs& a, int panel_begin, int panel_end, int row_begin, int row_end) {
  odd_begins += panel_begin % 2;
  for (int row = row_begin; row < row_end; ++row) {
    for (int p = panel_begin; p < panel_end; ++p) a.y[static_cast<size_t>(row) * a.y_stride + p] += 1;
  }
}

TEST(Linears, VisitEachPanelOfEachRowOnceAndInWholeGroups) {
  KernelSet kernels = reference_kernels();
  kernels.linear = visit;
  kernels.linear_panels = 2;
  for (const int threads : {1, 2, 5}) {
    Team team(threads);
    const Compute compute{kernels, team, Activations::kInt8};
    for (const int rows : {1, 63, 64, 130}) {
      for (const std::vector<int>& outputs : {std::vector{5}, {300}, {576, 192, 192}, {1000, 7, 600}}) {
        std::vector<PackedMatrix> matrices;
        std::vector<std::vector<float>> y;
        for (const int n : outputs) {
          matrices.push_back(describe_packed(TensorType::F32, n, 32));
          y.emplace_back(static_cast<size_t>(rows * matrices.back().panels()));
        }
        std::vector<LinearArgs> list(outputs.size());
        int panels = 0;
        for (size_t i = 0; i < list.size(); ++i) {
          list[i].weights = &matrices[i];
          list[i].y = y[i].data();
          list[i].y_stride = static_cast<size_t>(matrices[i].panels());
          panels += matrices[i].panels();
        }
        odd_begins = 0;
        linears(compute, list, rows);
        for (const auto& visits : y) EXPECT_EQ(visits, std::vector<float>(visits.size(), 1.0f));
        if (panels >= 4 * threads) {
          EXPECT_EQ(odd_begins, 0);
        }
      }
    }
  }
}

// At 131,072 rows (an unchunked prompt) and 8 KV heads, the tile list takes 56 MiB.
TEST(AttentionOp, CountsItsTileListAsMemory) {
  const int eight = AttentionOp::tiles_per_row(32, 8), three = AttentionOp::tiles_per_row(40, 1);
  const size_t few = AttentionOp::memory_bytes(2, {512, 131072, eight, 64}),
               many = AttentionOp::memory_bytes(2, {131072, 131072, eight, 64});
  EXPECT_EQ(many - few, size_t{131072 - 512} * 8 * sizeof(AttentionTile));
  // 40 query heads of one KV head need three tiles a row.
  EXPECT_EQ(AttentionOp::memory_bytes(1, {2, 16, three, 64}) - AttentionOp::memory_bytes(1, {1, 16, three, 64}),
            3 * sizeof(AttentionTile));
}

}  // namespace
}  // namespace quire
