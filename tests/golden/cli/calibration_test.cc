// Calibration of whole models: every matrix is seen, and the sums are those of the rows that come to it.
#include "cli/calibration/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "cli/calibration/layered_model.h"
#include "cli/text/chunk_run.h"
#include "golden/engine/loaded.h"
#include "model/convert/convert.h"
#include "model/tensors.h"
#include "paths.h"
#include "quantize/input_collector.h"
#include "quantize/measure_importance.h"

namespace quire {
namespace {

constexpr size_t kChunk = 24, kChunks = 2;

TextChunks some_tokens(int vocab) {
  TextChunks text{{}, kChunk};
  for (size_t i = 0; i < kChunk * kChunks; ++i)
    text.ids.push_back(static_cast<TokenId>(i * 7919 % static_cast<size_t>(vocab)));
  return text;
}

std::vector<std::string> model_folders_here() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(golden_dir() / "models"))
    found.push_back(entry.path().string());
  std::ranges::sort(found);
  return found;
}

void expect_sums_of_rows(const InputStatistics& s) {
  const auto cols = static_cast<size_t>(s.cols);
  ASSERT_EQ(s.sample.size(), s.rows * cols);  // all rows were kept
  ASSERT_EQ(s.gram.size(), cols * cols);
  double largest = 0, worst = 0;
  std::vector<double> factors;  // that bring the rows to a mean square of 1
  for (size_t row = 0; row < s.rows; ++row) {
    double squares = 0;
    for (size_t i = 0; i < cols; ++i)
      squares += static_cast<double>(s.sample[row * cols + i]) * s.sample[row * cols + i];
    factors.push_back(squares > 0 ? static_cast<double>(cols) / squares : 0);
  }
  for (size_t i = 0; i < cols; ++i) {
    double squares = 0, magnitudes = 0;
    for (size_t row = 0; row < s.rows; ++row) {
      const double x = s.sample[row * cols + i];
      squares += x * x;
      magnitudes += std::abs(x);
    }
    EXPECT_NEAR(s.squares[i], squares, 1e-9 * (1 + squares));
    EXPECT_NEAR(s.magnitudes[i], magnitudes, 1e-9 * (1 + magnitudes));
    for (size_t j = 0; j < cols; ++j) {
      double product = 0;
      for (size_t row = 0; row < s.rows; ++row)
        product += factors[row] * s.sample[row * cols + i] * s.sample[row * cols + j];
      largest = std::max(largest, std::abs(product));
      worst = std::max(worst, std::abs(product - s.gram[i * cols + j]));
    }
  }
  EXPECT_LE(worst, 1e-5 * largest);
}

class Calibration : public ::testing::TestWithParam<std::string> {};

TEST_P(Calibration, SeesTheInputsOfEveryMatrix) {
  Loaded loaded(GetParam(), "auto", "f32");
  LoadedModel& model = loaded.model;
  const TextChunks text = some_tokens(model.target.config.vocab);
  InputCollector inputs(model.target.config, model.target.weights, model.runtime.cpu.compute(Activations::kF32),
                        {.gram = [](const Slot&) { return true; }, .sample_rows = 1000});
  calibrate(model, text, inputs, true, [](size_t, size_t) {});
  std::map<std::pair<int, Tensor>, uint64_t> expert_rows;
  for_each_matrix(model.target.config, model.target.weights, [&](const Slot& slot, const Linear& w) {
    if (is_table(slot.tensor) || w.weight.rows == 0) return;
    SCOPED_TRACE(fmt::format("tensor {} of layer {}, item {}", static_cast<int>(slot.tensor), slot.layer, slot.item));
    const std::shared_ptr<const InputStatistics> seen = inputs.of(slot);
    const bool is_of_expert =
        slot.tensor == Tensor::kExpertGate || slot.tensor == Tensor::kExpertUp || slot.tensor == Tensor::kExpertDown;
    if (is_of_expert) {
      if (!seen) return;
      expert_rows[{slot.layer, slot.tensor}] += seen->rows;
      EXPECT_EQ(seen->cols, w.weight.cols);
      return;
    }
    ASSERT_NE(seen, nullptr);
    // AltUp routes before and after each layer.
    EXPECT_EQ(seen->rows, kChunk * kChunks * (slot.tensor == Tensor::kAltUpRouter ? 2 : 1));
    EXPECT_EQ(seen->cols, w.weight.cols);
    expect_sums_of_rows(*seen);
  });
  for (const auto& [of, rows] : expert_rows) {
    const auto& moe = std::get<Moe>(model.target.config.layers[static_cast<size_t>(of.first)].ffn);
    EXPECT_EQ(rows, kChunk * kChunks * static_cast<size_t>(moe.routing.used));
  }
}

// Each place where a model can be cut is a cut, and what layers hand on goes through a file.
TEST_P(Calibration, OfSomeLayersAtATimeIsThatOfAll) {
  EngineOptions options;
  options.model = GetParam();
  options.threads = 2;
  LayeredModel model(options, kChunk, std::filesystem::temp_directory_path());
  const ModelConfig& config = model.config();
  const TextChunks text = some_tokens(config.vocab);
  std::unique_ptr<InputCollector> inputs;
  const auto run = [&](const LayerRange& part) {
    model.run(
        part, text, true,
        [&](const Weights& weights) -> InputObserver& {
          inputs = std::make_unique<InputCollector>(
              config, weights, model.compute(Activations::kF32),
              InputCollector::Wants{.gram = [](const Slot&) { return true; }, .sample_rows = 4});
          return *inputs;
        },
        [](size_t, size_t) {});
    return std::move(inputs);
  };
  const std::unique_ptr<InputCollector> all = run({0, model.layers()});
  std::vector<std::unique_ptr<InputCollector>> parts;
  for (LayerRange part; part.end < model.layers();) {
    part = model.part_from(part.end, 1, 1, [](int) { return 1; });
    parts.push_back(run(part));
  }
  EXPECT_LE(parts.size(), config.layers.size());
  for_each_matrix(config, model.shapes(), [&](const Slot& slot, const Linear&) {
    const std::shared_ptr<const InputStatistics> expected = all->of(slot);
    std::vector<std::shared_ptr<const InputStatistics>> seen;
    for (const auto& part : parts) {
      if (auto of_part = part->of(slot)) seen.push_back(std::move(of_part));
    }
    SCOPED_TRACE(fmt::format("tensor {} of layer {}, item {}", static_cast<int>(slot.tensor), slot.layer, slot.item));
    ASSERT_EQ(seen.size(), expected ? 1u : 0u);
    if (!expected) return;
    EXPECT_EQ(seen[0]->rows, expected->rows);
    EXPECT_EQ(seen[0]->squares, expected->squares);
    EXPECT_EQ(seen[0]->largest, expected->largest);
    EXPECT_EQ(seen[0]->sample, expected->sample);
    EXPECT_EQ(seen[0]->gram, expected->gram);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Calibration, ::testing::ValuesIn(model_folders_here()),
                         [](const auto& info) { return std::filesystem::path(info.param).filename().string(); });

TEST(MeasuredImportance, IsTheSameForAllThreadsAndNamesEveryLinearOfTheFile) {
  const std::string folder = (golden_dir() / "models" / "deepseek_v3").string();
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const FilePlan file = plan_file(checkpoint, "m");
  std::vector<ImportanceMatrix> found;
  for (int threads : {1, 2, 3}) {
    EngineOptions options;
    options.model = folder;
    options.threads = threads;
    options.max_num_seqs = 1;
    options.max_num_batched_tokens = 128;
    LoadedModel model(options, kScoredRows);
    InputCollector inputs(model.target.config, model.target.weights, model.runtime.cpu.compute(Activations::kF32), {});
    calibrate(model, some_tokens(model.target.config.vocab), inputs, false, [](size_t, size_t) {});
    found.push_back(measured_importance(
        file, [&](const Slot& slot) { return inputs.of(slot); }, false));
  }
  for (const ImportanceMatrix& other : found) {
    ASSERT_EQ(other.entries.size(), found[0].entries.size());
    for (const auto& [name, entry] : other.entries) {
      EXPECT_EQ(entry.sums, found[0].entries.at(name).sums) << name;
      EXPECT_EQ(entry.counts, found[0].entries.at(name).counts) << name;
    }
  }
  EXPECT_FALSE(found[0].entries.contains("output.weight"));
  for (const char* name : {"blk.0.attn_output.weight", "blk.1.ffn_down_exps.weight", "blk.1.ffn_gate_exps.weight",
                           "blk.1.ffn_up_exps.weight", "blk.1.ffn_gate_inp.weight"})
    EXPECT_TRUE(found[0].entries.contains(name)) << name;
}

TEST(MeasuredImportance, AddsUpToThatOfBothTexts) {
  ImportanceMatrix a, b;
  a.entries["x"] = {{1, 2}, {3}};
  b.entries["x"] = {{10, 20}, {4}};
  b.entries["y"] = {{5}, {6}};
  b.chunks = 7;
  add_importance(a, b);
  EXPECT_EQ(a.entries["x"].sums, (std::vector<float>{11, 22}));
  EXPECT_EQ(a.entries["x"].counts, std::vector<float>{7});
  EXPECT_EQ(a.entries["y"].sums, std::vector<float>{5});
  EXPECT_EQ(a.chunks, 7);
  b.entries["x"] = {{1}, {1}};
  EXPECT_THROW(add_importance(a, b), Error);
}

}  // namespace
}  // namespace quire
