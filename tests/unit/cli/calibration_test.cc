// Calibration in parts gives what calibration of all layers at once gives, in whatever order it is asked.
#include "cli/calibration/calibration.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr int kContext = 80;  // more than the rows of a step with logits

class CalibrationInParts : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(text_) << [] {
      std::string text;
      for (int i = 0; i < 400; ++i) text += std::to_string(i * i) + (i % 7 == 0 ? "\n" : " ");
      return text;
    }();
  }
  void TearDown() override { fs::remove(text_); }

  Calibration make(const Calibration::Wants& wants, const fs::path& folder = fs::temp_directory_path()) {
    EngineOptions engine;
    engine.model = testing::tiny_model();
    engine.threads = 2;
    return Calibration(engine, {.file = text_.string(), .context = kContext, .chunks = 3}, wants, folder, progress_,
                       [this] { checks_ += 1; });
  }
  static Calibration::Wants in_parts(Calibration::Wants wants) {
    wants.weight_bytes = wants.known_bytes = 1;
    return wants;
  }

  const fs::path text_ = fs::temp_directory_path() / ("quire-calibration-" + std::to_string(::getpid()));
  Progress progress_;
  int checks_ = 0;
};

const Slot kSlots[] = {{.tensor = Tensor::kQ, .layer = 0},
                       {.tensor = Tensor::kDown, .layer = 0},
                       {.tensor = Tensor::kO, .layer = 1},
                       {.tensor = Tensor::kDown, .layer = 1}};

void expect_same(const InputStatistics& a, const InputStatistics& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.squares, b.squares);
  EXPECT_EQ(a.gram, b.gram);
  EXPECT_EQ(a.sample, b.sample);
}

TEST_F(CalibrationInParts, SeesWhatCalibrationAtOnceSees) {
  const Calibration::Wants wants{.sample_rows = 5};
  Calibration all = make(wants), parts = make(in_parts(wants));
  for (const Slot& slot : kSlots) {
    const auto expected = all.inputs_of(slot), seen = parts.inputs_of(slot);
    ASSERT_TRUE(expected && seen);
    EXPECT_EQ(expected->rows, 3u * kContext);
    EXPECT_FALSE(expected->gram.empty());
    expect_same(*seen, *expected);
  }
  EXPECT_EQ(parts.inputs_of({.tensor = Tensor::kEmbedding}), nullptr);
}

TEST_F(CalibrationInParts, MayBeAskedInAnyOrderAndLeaveLayersOut) {
  Calibration all = make({}), parts = make(in_parts({}));
  for (const int i : {2, 0, 3, 1}) expect_same(*parts.inputs_of(kSlots[i]), *all.inputs_of(kSlots[i]));
}

TEST_F(CalibrationInParts, ComputesALayerOnce) {
  Calibration parts = make(in_parts({}));
  for (const Slot& slot : kSlots) parts.inputs_of(slot);
  EXPECT_EQ(checks_, 2 * (3 + 1));  // two layers, three chunks
}

TEST_F(CalibrationInParts, KnowsTheOutputMatrixAndImportanceBeforeLayers) {
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_model());
  const FilePlan file = plan_file(checkpoint, "m");
  const Calibration::Wants wants{.output = true};
  Calibration all = make(wants), parts = make(in_parts(wants));
  const ImportanceMatrix expected = all.importance(file), seen = parts.importance(file);
  EXPECT_EQ(expected.entries.size(), 14u);  // seven matrices a layer
  ASSERT_EQ(seen.entries.size(), expected.entries.size());
  for (const auto& [name, entry] : expected.entries) EXPECT_EQ(seen.entries.at(name).sums, entry.sums) << name;
  EXPECT_EQ(seen.chunks, 3);
  ASSERT_TRUE(all.inputs_of_output());
  EXPECT_EQ(all.inputs_of_output()->rows, 3u * kContext);
  expect_same(*parts.inputs_of_output(), *all.inputs_of_output());
  // The output may also be asked for between layers.
  Calibration late = make(in_parts(wants));
  const std::vector<float> first = late.inputs_of(kSlots[0])->gram;
  expect_same(*late.inputs_of_output(), *all.inputs_of_output());
  EXPECT_EQ(late.inputs_of(kSlots[0])->gram, first);
  EXPECT_EQ(late.inputs_of(kSlots[3])->gram, parts.inputs_of(kSlots[3])->gram);
}

TEST_F(CalibrationInParts, SaysWhereHiddenStatesCannotBeWritten) {
  try {
    make({}, "/nonexistent/folder");
    FAIL() << "a missing folder was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/folder"), std::string::npos) << error.what();
  }
}

TEST(FolderOfHiddenStates, IsNextToTheOutput) {
  EXPECT_EQ(folder_of_hidden_states("/a/b/model.gguf"), "/a/b");
  EXPECT_EQ(folder_of_hidden_states("/a/b/directory/"), "/a/b");
  EXPECT_EQ(folder_of_hidden_states("model.gguf"), fs::current_path());
  EXPECT_EQ(folder_of_hidden_states(""), fs::temp_directory_path());
}

}  // namespace
}  // namespace quire
