#include "engine/ranks/placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/memory.h"
#include "engine/loaded_model.h"
#include "model/synth.h"
#include "model/tensors.h"
#include "ops/communicator.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

// A model whose matrices are many pages.
class PlacementOfWeights : public ::testing::Test {
 protected:
  PlacementOfWeights() {
    write_synthetic_model(file_, {"placed", 2, 1024, 16, 4, 64, 4096, 320, 512, 10000, false}, TensorType::BF16, 5);
    EngineOptions o = testing::tiny_options();
    o.model = file_;
    model_ = std::make_unique<LoadedModel>(o, 1);
  }
  ~PlacementOfWeights() override { std::filesystem::remove(file_); }

  const ModelConfig& config() const { return model_->target.config; }
  const Weights& weights() const { return model_->target.weights; }

  const std::string file_ =
      std::filesystem::temp_directory_path() / ("quire-placed-" + std::to_string(::getpid()) + ".gguf");
  std::unique_ptr<LoadedModel> model_;
};

// Moving on a made-up machine does nothing, and succeeds.
TEST_F(PlacementOfWeights, IsOnceForEach) {
  size_t large = 0;
  for_each_matrix(config(), weights(), [&](const Slot& slot, const Linear& linear) {
    if (!is_table(slot.tensor) && linear.weight.bytes() >= kHugePage) large += linear.weight.bytes();
  });
  ASSERT_GT(large, 12 * kHugePage);
  for (const int parts : {2, 3, 4}) {
    const Placement placement(std::make_shared<const MemoryNodes>("node:2 core:2 pu:1"), parts);
    const size_t moved = place_by_ranks(config(), weights(), placement, parts);
    EXPECT_GE(moved, large - 4 * kHugePage) << parts;
    EXPECT_LE(moved, weights().matrix_bytes) << parts;
  }
  const std::vector<LayerRange> layers{{0, 1}, {1, 2}};
  const Placement placement(std::make_shared<const MemoryNodes>("node:2 core:2 pu:1"), 2);
  EXPECT_GE(place_by_stages(config(), weights(), placement, layers), large - 4 * kHugePage);
}

// With one node, this only shows that moving is not refused.
TEST_F(PlacementOfWeights, IsWhereTheirRanksCompute) {
  const Placement placement(std::make_shared<const MemoryNodes>(), 2);
  if (place_by_ranks(config(), weights(), placement, 2) == 0) GTEST_SKIP() << "the system moves no memory";
  int right = 0, wrong = 0;
  for_each_matrix(config(), weights(), [&](const Slot& slot, const Linear& linear) {
    const PackedMatrix& w = linear.weight;
    if (is_table(slot.tensor) || w.bytes() < 4 * kHugePage) return;
    for (int rank = 0; rank < 2; ++rank) {
      const Share panels = share_of(w.panels(), rank, 2);
      const int node = placement.nodes().node_of(w.panel((panels.begin + panels.end) / 2));
      ++(node < 0 || node == placement.of(rank).begin ? right : wrong);
    }
  });
  EXPECT_GE(right, 12);
  EXPECT_EQ(wrong, 0);
}

TEST(Placement, IsNoneWhereItChangesNothing) {
  EXPECT_FALSE(place_parts("off", 2));
  EXPECT_FALSE(place_parts("auto", 1));
  EXPECT_EQ(static_cast<bool>(place_parts("auto", 2)), MemoryNodes().size() > 1);
}

// Threads that are bound compute as others do.
TEST(Placement, ChangesNoAnswer) {
  EngineOptions o = testing::tiny_options();
  Request request;
  request.prompt = testing::random_tokens(1, 40);
  request.sampling.max_tokens = 20;
  Engine one(o);
  const testing::Answer expected = testing::answer(one, request);
  for (const bool stages : {false, true}) {
    for (const char* numa : {"auto", "off"}) {
      (stages ? o.pipeline_parallel_size : o.tensor_parallel_size) = 2;
      (stages ? o.tensor_parallel_size : o.pipeline_parallel_size) = 1;
      o.numa = numa;
      Engine several(o);
      testing::expect_same(expected, testing::answer(several, request), numa);
    }
  }
}

}  // namespace
}  // namespace quire
