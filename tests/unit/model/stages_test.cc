// How layers are cut into stages, and steps into micro-batches.

#include <gtest/gtest.h>

#include <vector>

#include "error_of.h"
#include "model/stages/cut_layers.h"
#include "model/stages/micro_batches.h"

namespace quire {
namespace {

ModelConfig layers_of(int count) {
  ModelConfig config;
  config.layers.assign(static_cast<size_t>(count), LayerSpec{.mixer = Attention{.heads = 1, .kv_heads = 1}});
  return config;
}

WeightTotals totals_of(std::vector<uint64_t> layers, uint64_t input, uint64_t output) {
  WeightTotals totals;
  totals.layer_bytes = std::move(layers);
  totals.input_bytes = totals.embedding_bytes = input;
  totals.output_bytes = output;
  return totals;
}

TEST(CutLayers, MakesTheLargestStageAsSmallAsPossible) {
  const ModelConfig config = layers_of(6);
  EXPECT_EQ(cut_layers(config, totals_of({1, 1, 1, 1, 1, 1}, 0, 0), 3),
            (std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 6}}));
  // The embedding weighs as much as a layer, the output as two.
  EXPECT_EQ(cut_layers(config, totals_of({1, 1, 1, 1, 1, 1}, 1, 2), 3),
            (std::vector<LayerRange>{{0, 2}, {2, 5}, {5, 6}}));
  EXPECT_EQ(cut_layers(config, totals_of({9, 1, 1, 1, 1, 1}, 0, 0), 2), (std::vector<LayerRange>{{0, 1}, {1, 6}}));
  EXPECT_EQ(cut_layers(config, totals_of({1, 1, 1, 1, 1, 1}, 0, 0), 6).size(), 6u);
}

TEST(CutLayers, CountsATiedOutputInTheLastStage) {
  ModelConfig config = layers_of(4);
  config.tied_output = true;
  const WeightTotals totals = totals_of({1, 1, 1, 1}, 2, 0);
  EXPECT_EQ(stage_bytes(config, totals, {0, 4}), 6u);
  EXPECT_EQ(stage_bytes(config, totals, {0, 2}), 4u);
  EXPECT_EQ(stage_bytes(config, totals, {2, 4}), 4u);
  EXPECT_EQ(cut_layers(config, totals, 2), (std::vector<LayerRange>{{0, 2}, {2, 4}}));
}

TEST(CutLayers, KeepsLayersTogetherThatNeedMoreThanAResult) {
  ModelConfig config = layers_of(4);
  config.layers[0].joined = true;
  std::get<Attention>(config.layers[3].mixer).shares_cache = 2;
  const WeightTotals totals = totals_of({1, 1, 1, 1}, 0, 0);
  EXPECT_EQ(cut_layers(config, totals, 2), (std::vector<LayerRange>{{0, 2}, {2, 4}}));
  EXPECT_NE(error_of([&] { cut_layers(config, totals, 3); }).find("at most 2 stages"), std::string::npos);
  EXPECT_NE(error_of([&] { cut_layers(config, totals, 5); }).find("has 4 layers; use at most 4"), std::string::npos);
}

// Rows for spans of so many, at positions from 10 on.
struct TestBatch {
  std::vector<Row> rows;
  std::vector<Span> spans;

  explicit TestBatch(const std::vector<int>& counts) {
    for (const int count : counts) {
      spans.push_back({.row = static_cast<int>(rows.size()), .rows = count, .position = 10, .tables = {}});
      rows.resize(rows.size() + static_cast<size_t>(count));
    }
  }
  Batch batch() const { return {rows, spans}; }
};

TEST(MicroBatches, CutRowsEvenlyAndInOrder) {
  const TestBatch step({1, 1, 10});
  const auto parts = micro_batches(step.batch(), {.most = 3, .least_rows = 2});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].spans.size(), 3u);
  int row = 0;
  for (const MicroBatch& part : parts) {
    EXPECT_EQ(part.row, row);
    EXPECT_EQ(part.rows, 4);
    row += part.rows;
  }
  EXPECT_EQ(parts[0].spans[2].row, 2);
  EXPECT_EQ(parts[0].spans[2].rows, 2);
  EXPECT_EQ(parts[1].spans[0].position, 12);
  EXPECT_EQ(parts[2].spans[0].position, 16);
}

TEST(MicroBatches, AreFewWhereRowsAreFew) {
  const TestBatch step({7});
  EXPECT_EQ(micro_batches(step.batch(), {.most = 8, .least_rows = 4}).size(), 1u);
  EXPECT_EQ(micro_batches(step.batch(), {.most = 8, .least_rows = 3}).size(), 2u);
  EXPECT_EQ(micro_batches(step.batch(), {.most = 8, .least_rows = 1}).size(), 7u);
}

TEST(MicroBatches, KeepSpansWholeThatHaveDraftsOrSeeLaterRows) {
  TestBatch step({6, 1, 5});
  step.spans[0].drafts = 3;
  step.spans[2].drafts = 1;
  const auto parts = micro_batches(step.batch(), {.most = 6, .least_rows = 1});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].rows, 6);
  EXPECT_EQ(parts[0].drafted, 0);
  EXPECT_EQ(parts[1].rows, 6);
  EXPECT_EQ(parts[1].drafted, 3);
  EXPECT_EQ(parts[1].spans[1].drafts, 1);
  const TestBatch prompts({6, 6});
  EXPECT_EQ(micro_batches(prompts.batch(), {.most = 4, .least_rows = 1, .whole_spans = true}).size(), 2u);
}

TEST(MicroBatches, CopyStatesAfterTheirRows) {
  TestBatch step({6});
  const StateCopy copies[] = {{1, 7}, {2, 8}, {5, 9}};
  step.spans[0].state_copies = copies;
  const auto parts = micro_batches(step.batch(), {.most = 2, .least_rows = 1});
  ASSERT_EQ(parts.size(), 2u);
  const auto first = parts[0].spans[0].state_copies, second = parts[1].spans[0].state_copies;
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].row, 2);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].row, 2);
  EXPECT_EQ(second[0].slot, 9);
}

}  // namespace
}  // namespace quire
