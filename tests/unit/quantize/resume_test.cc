// Runs that are interrupted after each tensor and continued must write the bytes of a run that was not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/files/mapped_file.h"
#include "format/partial_output.h"
#include "quantize/quantize.h"
#include "unit/quantize/hf_test_models.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

struct Interruption {};
const Json kOrder = {{"--type", "Q4_K_M"}};

class Resume : public testing::HfFolder {
 protected:
  // Statistics as a calibration text would give them; counts how often they are asked for.
  explicit Resume()
      : checkpoint_(Checkpoint::open(testing::hf_model("llama"))),
        source_(open_model_source(checkpoint_)),
        random_(source_) {}

  std::shared_ptr<const InputStatistics> inputs_of(const Slot& slot) {
    ++asked_[slot.layer];
    return random_(slot);
  }

  // Writes a GGUF file, up to the call of progress with so many tensors written.
  QuantizePlan write_file(const fs::path& to, PartialOutput* partial, size_t stop_at = SIZE_MAX) {
    QuantizeOptions options{.mix = &find_mix("Q4_K_M"), .measure_errors = true};
    options.inputs = [&](const PlannedTensor& tensor, size_t item) {
      return tensor.layer < 0 ? nullptr : inputs_of({tensor.matrices.front(), tensor.layer, static_cast<int>(item), 0});
    };
    QuantizePlan plan = plan_quantization(checkpoint_, options);
    const auto stop = [&](size_t written, size_t) {
      if (written == stop_at) throw Interruption();
    };
    write_quantized(checkpoint_, plan, options, to, team_, stop, partial);
    return plan;
  }

  WrittenModel write_folder(const fs::path& to, const char* name, PartialOutput* partial, size_t stop_at = SIZE_MAX) {
    const HfMethod& method = find_hf_method(name);
    const HfPlan plan = plan_hf_model(source_, method, method.defaults, true);
    const auto stop = [&](size_t written, size_t, const std::string&) {
      if (written == stop_at) throw Interruption();
    };
    return write_hf_model(
        source_, plan, [&](const Slot& slot) { return inputs_of(slot); }, to, true, team_, stop, partial);
  }

  // As an interrupted run of the program does it.
  template <class Write>
  void interrupt(Write write) {
    PartialOutput partial(at("out"), kOrder, false);
    EXPECT_THROW(write(partial), Interruption);
  }

  void expect_same_folder(const fs::path& a, const fs::path& b) {
    std::vector<std::string> seen[2];
    for (int i = 0; i < 2; ++i) {
      for (const auto& entry : fs::directory_iterator(i == 0 ? a : b)) seen[i].push_back(entry.path().filename());
      std::ranges::sort(seen[i]);
    }
    ASSERT_EQ(seen[0], seen[1]);
    for (const std::string& name : seen[0]) EXPECT_EQ(read_text_file(a / name), read_text_file(b / name)) << name;
  }

  const Checkpoint checkpoint_;
  const ModelSource source_;
  testing::RandomInputs random_;
  std::map<int, int> asked_;  // by layer
};

TEST_F(Resume, FilesHaveTheBytesOfARunThatWasNotInterrupted) {
  const QuantizePlan whole = write_file(at("whole"), nullptr);
  const size_t tensors = whole.changes.size();
  for (size_t stop = 1; stop <= tensors; ++stop) {
    SCOPED_TRACE(stop);
    interrupt([&](PartialOutput& partial) { write_file(at("out"), &partial, stop); });
    EXPECT_FALSE(fs::exists(at("out")));
    PartialOutput partial(at("out"), kOrder, false);
    const QuantizePlan plan = write_file(at("out"), &partial);
    partial.finish();
    EXPECT_EQ(read_text_file(at("out")), read_text_file(at("whole")));
    for (size_t i = 0; i < tensors; ++i) EXPECT_EQ(plan.changes[i].error, whole.changes[i].error);
    EXPECT_EQ(plan.warnings, whole.warnings);
    EXPECT_EQ(names(), (std::vector<std::string>{"out", "whole"}));
    fs::remove(at("out"));
  }
}

TEST_F(Resume, FilesAreContinuedStepByStepAndFinishedLayersNeedNoStatistics) {
  write_file(at("whole"), nullptr);
  const size_t tensors = plan_quantization(checkpoint_, {.mix = &find_mix("Q4_K_M")}).changes.size();
  for (size_t stop = 1; stop <= tensors; ++stop)
    interrupt([&](PartialOutput& partial) { write_file(at("out"), &partial, stop); });
  asked_.clear();
  PartialOutput partial(at("out"), kOrder, false);
  write_file(at("out"), &partial);
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(read_text_file(at("out")), read_text_file(at("whole")));
}

TEST_F(Resume, DamagedTensorsAreWrittenAgain) {
  write_file(at("whole"), nullptr);
  interrupt([&](PartialOutput& partial) { write_file(at("out"), &partial, 12); });
  const fs::path unfinished = at("out.partial") / "output";
  std::string bytes = read_text_file(unfinished);
  for (size_t i = bytes.size() / 20; i < bytes.size(); i += bytes.size() / 20) bytes[i] = static_cast<char>(~bytes[i]);
  std::ofstream(unfinished, std::ios::binary) << bytes.substr(0, bytes.size() - 100);
  PartialOutput partial(at("out"), kOrder, false);
  write_file(at("out"), &partial);
  EXPECT_EQ(read_text_file(at("out")), read_text_file(at("whole")));
}

class ResumedMethods : public Resume, public ::testing::WithParamInterface<const char*> {};

TEST_P(ResumedMethods, FoldersHaveTheBytesOfARunThatWasNotInterrupted) {
  const WrittenModel whole = write_folder(at("whole"), GetParam(), nullptr);
  const size_t tensors = source_.tensors.size();
  for (size_t stop = 1; stop <= tensors; stop += 3) {
    SCOPED_TRACE(stop);
    interrupt([&](PartialOutput& partial) { write_folder(at("out"), GetParam(), &partial, stop); });
    EXPECT_FALSE(fs::exists(at("out")));
    std::ofstream(at("out.partial") / "output/config.json") << "of an earlier run";
    PartialOutput partial(at("out"), kOrder, false);
    const WrittenModel written = write_folder(at("out"), GetParam(), &partial);
    partial.finish();
    expect_same_folder(at("out"), at("whole"));
    ASSERT_EQ(written.losses.size(), whole.losses.size());
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_EQ(written.losses[i].module, whole.losses[i].module);
      EXPECT_EQ(written.losses[i].weights, whole.losses[i].weights);
      EXPECT_EQ(written.losses[i].outputs, whole.losses[i].outputs);
    }
    EXPECT_EQ(written.notes, whole.notes);
    fs::remove_all(at("out"));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"whole"}));
}

TEST_P(ResumedMethods, AnOlderFolderIsReplacedOnlyByAWholeOne) {
  fs::create_directory(at("out"));
  std::ofstream(at("out") / "config.json") << "older";
  interrupt([&](PartialOutput& partial) { write_folder(at("out"), GetParam(), &partial, 5); });
  EXPECT_EQ(read_text_file(at("out") / "config.json"), "older");
  PartialOutput partial(at("out"), kOrder, false);
  write_folder(at("out"), GetParam(), &partial);
  partial.finish();
  write_folder(at("whole"), GetParam(), nullptr);
  expect_same_folder(at("out"), at("whole"));
}

INSTANTIATE_TEST_SUITE_P(Methods, ResumedMethods, ::testing::Values("gptq", "awq", "smoothquant", "rtn-int4", "nf4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace quire
