#include "engine/tuner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "engine/loaded_model.h"
#include "kernels/kernels.h"
#include "model/synth.h"
#include "ops/forwarding.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/tiny_engine.h"
#include "unit/ops/two_loops.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Choices = TuningFile::Choices;
using testing::all_logits;
using testing::kFastLoop;
using testing::kSlowLoop;
using testing::same_bits;

class TuningFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("quire-tuner-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ / "tuning.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  TuningFile file(const std::string& machine = "here") {
    return {path_, machine, [this](const std::string& warning) { warnings_.push_back(warning); }};
  }
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string text() const { return read_text_file(path_, SIZE_MAX); }

  fs::path folder_, path_;
  std::vector<std::string> warnings_;
};

// What save() cannot have written.
std::vector<std::string> damaged_files() {
  return {"",
          "{",
          R"({"version": 1, "machines": {"here": {"kind": "lo)",
          "\xff\xfe",
          "[]",
          R"({"hello": "world"})",
          R"({"version": 1})",
          R"({"version": "1", "machines": {}})",
          R"({"version": 2, "machines": {"here": {"kind": "loop"}}})",
          R"({"version": 1, "machines": []})",
          R"({"version": 1, "machines": {"here": []}})",
          R"({"version": 1, "machines": {"here": {"kind": 1}}})",
          R"({"version": 1, "machines": {"here": {"kind": "loop", "other": null}}})",
          R"({"version": 1, "machines": )" + std::string(100000, '['),
          R"({"version": 1, "machines": {}})" + std::string(size_t{8} << 20, ' ')};
}

TEST_F(TuningFiles, AreMadeWithTheirFolders) {
  path_ = folder_ / "new/folder/tuning.json";
  EXPECT_TRUE(file().read().empty());
  file().save({{"kind", "loop"}});
  EXPECT_EQ(file().read(), (Choices{{"kind", "loop"}}));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

TEST_F(TuningFiles, KeepTheChoicesOfOtherMachines) {
  file().save({{"kind", "loop"}, {"other", "loop"}});
  file("there").save({{"kind", "another"}});
  file().save({{"kind", "better"}});
  EXPECT_EQ(file().read(), (Choices{{"kind", "better"}}));
  EXPECT_EQ(file("there").read(), (Choices{{"kind", "another"}}));
  EXPECT_TRUE(file("elsewhere").read().empty());
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

TEST_F(TuningFiles, StaySmall) {
  for (int i = 0; i < 100; ++i) file("machine " + std::to_string(i)).save({{"kind", std::string(1000, 'x')}});
  EXPECT_LT(fs::file_size(path_), 100'000u);
  file().save({{"kind", "loop"}});
  EXPECT_EQ(file().read(), (Choices{{"kind", "loop"}}));
  // Saving again drops no other machine.
  const auto size = fs::file_size(path_);
  file().save({{"kind", "loop"}});
  EXPECT_EQ(fs::file_size(path_), size);
}

TEST_F(TuningFiles, ThatAreDamagedAreReplacedAfterOneWarning) {
  for (const std::string& damaged : damaged_files()) {
    write(damaged);
    warnings_.clear();
    EXPECT_TRUE(file().read().empty()) << damaged.substr(0, 80);
    ASSERT_EQ(warnings_.size(), 1u) << damaged.substr(0, 80);
    EXPECT_TRUE(warnings_[0].starts_with(path_.string())) << warnings_[0];
    file().save({{"kind", "loop"}});
    EXPECT_EQ(file().read(), (Choices{{"kind", "loop"}})) << damaged.substr(0, 80);
    EXPECT_EQ(warnings_.size(), 1u) << damaged.substr(0, 80);
  }
}

TEST_F(TuningFiles, KeepTheChoicesOfOtherMachinesIfOnlyTheirOwnAreDamaged) {
  write(R"({"version": 1, "machines": {"here": 5, "there": {"kind": "loop"}}})");
  EXPECT_TRUE(file().read().empty());
  file().save({{"kind", "better"}});
  EXPECT_EQ(file("there").read(), (Choices{{"kind", "loop"}}));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(TuningFiles, ThatCannotBeWrittenGiveOneWarningAndLeaveNothing) {
  std::ofstream(folder_ / "file") << "text";
  fs::create_directory(folder_ / "folder");
  for (const char* path : {"file/tuning.json", "folder"}) {
    path_ = folder_ / path;
    warnings_.clear();
    EXPECT_TRUE(file().read().empty());
    file().save({{"kind", "loop"}});
    ASSERT_EQ(warnings_.size(), 1u) << path;
    EXPECT_TRUE(warnings_[0].starts_with("cannot write " + path_.string())) << warnings_[0];
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 2);
}

// The file of a model that is large enough to be tuned.
std::string large_model() {
  static const struct File {
    fs::path path = fs::temp_directory_path() / ("quire-tuned-" + std::to_string(::getpid()) + ".gguf");
    File() {
      write_synthetic_model(path, {"tuned", 2, 512, 8, 2, 64, 4096, 8192, 512, 10000, false}, TensorType::Q8_0, 5);
    }
    ~File() { fs::remove(path); }
  } file;
  return file.path.string();
}

EngineOptions options_of_model(const std::string& model) {
  EngineOptions o = testing::tiny_options();
  o.model = model;
  return o;
}

TEST(TunedProjections, AreThoseOfTheDecoder) {
  const LoadedModel model(options_of_model(large_model()));
  std::vector<std::string> shapes;  // of all calls: outputs of matrices, and of what gates them
  for (const TunedProjection& p : tuned_projections(model.target, Activations::kBf16)) {
    std::string shape;
    for (const Linear* w : p.matrices) shape += std::to_string(w->weight.rows) + " ";
    shapes.push_back(shape + (p.up ? "up " + std::to_string(p.up->weight.rows) + " " : "") + "of " +
                     std::to_string(p.matrices[0]->weight.cols));
  }
  std::vector<std::string> expected;
  for (int layer = 0; layer < 2; ++layer)
    for (const char* shape : {"512 128 128 of 512", "512 of 512", "4096 up 4096 of 512", "512 of 4096"})
      expected.emplace_back(shape);
  expected.emplace_back("8192 of 512");
  std::ranges::sort(shapes);
  std::ranges::sort(expected);
  EXPECT_EQ(shapes, expected);
}

// A device with kernels to choose from.
class ChoosingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::string tuned_as() const override { return "a GPU"; }
  KernelChoices tune(std::span<const TunedProjection> projections, Activations, int rows, const KernelChoices& known,
                     const std::function<void(size_t, size_t)>& report) override {
    EXPECT_EQ(projections.size(), 9U);
    EXPECT_EQ(rows, 16);
    known_ = known;
    KernelChoices measured;
    for (const char* kind : {"one", "two"}) {
      if (known.contains(kind)) continue;
      report(measured.size(), 2);
      measured[kind] = "fast";
    }
    return measured;
  }

  KernelChoices known_;
};

TEST_F(TuningFiles, KeepTheKernelsThatADeviceMeasures) {
  LoadedModel model(options_of_model(large_model()));
  ChoosingBackend device(model.runtime.cpu);
  int reports = 0;
  const auto tune_device = [&](bool force) {
    tune(device, model.target, Activations::kBf16, 16, file(), force,
         [&](const LoadProgress& progress) { reports += progress.stage == LoadProgress::Stage::kTuning ? 1 : 0; });
  };
  file().save({{"one", "slow"}});
  tune_device(false);
  const Choices both{{"one", "slow"}, {"two", "fast"}};
  EXPECT_EQ(file().read(), both);
  tune_device(false);
  EXPECT_EQ(device.known_, both);
  EXPECT_EQ(file().read(), both);
  EXPECT_EQ(reports, 1);
  tune_device(true);
  EXPECT_TRUE(device.known_.empty());
  EXPECT_EQ(file().read(), (Choices{{"one", "fast"}, {"two", "fast"}}));
  const LoadedModel small(options_of_model(testing::tiny_model()));
  device.known_ = both;
  tune(device, small.target, Activations::kBf16, 16, file("elsewhere"), false, {});
  EXPECT_EQ(device.known_, both);  // not asked
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

// tune() with two loops, of which kFastLoop is clearly the faster.
class Tuner : public TuningFiles {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<LoadedModel>(options_of_model(large_model())); }
  static void TearDownTestSuite() { model_.reset(); }

  void SetUp() override {
    TuningFiles::SetUp();
    for (const int rows : {1, 2, 4}) {
      for (const TunedMatrix& m : tuned_matrices(model_->target, Activations::kInt8))
        kinds_.push_back(linear_kind(*m.weights, m.inputs, rows));
    }
  }

  // The choices, by name of the kind. measured_: whether any kind was measured.
  Choices tuned(bool force = false) {
    Tuning tuning;
    measured_ = false;
    tune({kernels_, model_->runtime.team, Activations::kInt8}, tuning, model_->target, file(), force,
         [this](const LoadProgress& progress) { measured_ |= progress.stage == LoadProgress::Stage::kTuning; });
    Choices choices;
    for (const LinearKind& kind : kinds_) {
      if (const LinearLoop* loop = tuning.loop(kind)) choices[name(kind)] = name(*loop);
    }
    return choices;
  }
  Choices all(const LinearLoop& loop) const {
    Choices choices;
    for (const LinearKind& kind : kinds_) choices[name(kind)] = name(loop);
    return choices;
  }

  static inline std::unique_ptr<LoadedModel> model_;
  const KernelSet kernels_ = testing::two_loop_kernels();
  std::vector<LinearKind> kinds_;
  bool measured_ = false;
};

TEST_F(Tuner, MeasuresOnceAndKeepsWhatItFinds) {
  EXPECT_EQ(all(kFastLoop).size(), 6u);  // matrices of 512 and 4,096 inputs, 1, 2 and 4 rows
  EXPECT_EQ(tuned(), all(kFastLoop));
  EXPECT_TRUE(measured_);
  EXPECT_EQ(file().read(), all(kFastLoop));
  EXPECT_EQ(tuned(), all(kFastLoop));
  EXPECT_FALSE(measured_);
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

TEST_F(Tuner, BelievesTheFileUnlessItIsForcedToMeasure) {
  file().save(all(kSlowLoop));
  EXPECT_EQ(tuned(), all(kSlowLoop));
  EXPECT_FALSE(measured_);
  EXPECT_EQ(tuned(true), all(kFastLoop));
  EXPECT_EQ(file().read(), all(kFastLoop));
}

// two_loop_kernels() fail the test if they are to run a loop that they do not list.
TEST_F(Tuner, MeasuresInsteadOfRunningALoopThatTheKernelsDoNotList) {
  Choices choices = all(kSlowLoop), expected = choices;
  int unknown = 0;
  for (const char* loop : {"tiles", "paired 2 panels", "stream 2 panels, 4095 B ahead", ""}) {
    const std::string kind = name(kinds_[static_cast<size_t>(unknown++)]);
    choices[kind] = loop;
    expected[kind] = name(kFastLoop);
  }
  choices["a kind of a later version"] = "stream";
  file().save(choices);
  EXPECT_EQ(tuned(), expected);
  EXPECT_TRUE(measured_);
  expected["a kind of a later version"] = "stream";
  EXPECT_EQ(file().read(), expected);
  EXPECT_EQ(warnings_, std::vector<std::string>{});
}

TEST_F(Tuner, WarnsOnceOfAFileThatItCannotUse) {
  write(damaged_files()[2]);
  EXPECT_EQ(tuned(), all(kFastLoop));
  EXPECT_EQ(warnings_.size(), 1u);
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(tuned(), all(kFastLoop));
  EXPECT_EQ(warnings_.size(), 2u);
}

// --tune, with the kernels of this machine.
class Tune : public TuningFiles {
 protected:
  EngineOptions options_of_model(const std::string& model, TuneMode how) {
    EngineOptions o = quire::options_of_model(model);
    o.tune = how;
    o.tuning_file = path_.string();
    measured_ = false;
    o.on_load = [this](const LoadProgress& progress) { measured_ |= progress.stage == LoadProgress::Stage::kTuning; };
    return o;
  }
  // Whether the kernels have loops to choose from.
  static bool has_choice() { return choose_kernels("auto").name != "reference"; }

  bool measured_ = false;
};

// The loops that were chosen for the linears of a model, by kind; nullptr: none.
std::map<LinearKind, const LinearLoop*> chosen(const LoadedModel& model) {
  std::map<LinearKind, const LinearLoop*> all;
  for (const TunedMatrix& m : tuned_matrices(model.target, model.plan.activation_type)) {
    for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
      const LinearKind kind = linear_kind(*m.weights, m.inputs, rows);
      all[kind] = model.runtime.tuning.loop(kind);
    }
  }
  return all;
}

TEST_F(Tune, AutoMeasuresAtTheFirstStartOnly) {
  if (!has_choice()) GTEST_SKIP() << "the reference kernels have one loop";
  const TokenIds ids = testing::random_tokens(1, 70);
  LoadedModel off(options_of_model(large_model(), TuneMode::kOff), 128);
  const std::vector<float> expected = all_logits(off, ids, 13);
  LoadedModel first(options_of_model(large_model(), TuneMode::kAuto), 128);
  EXPECT_TRUE(measured_);
  const std::string written = text();
  LoadedModel second(options_of_model(large_model(), TuneMode::kAuto), 128);
  EXPECT_FALSE(measured_);
  EXPECT_EQ(text(), written);
  for (const auto& [kind, loop] : chosen(second)) {
    const LinearLoop* const measured = first.runtime.tuning.loop(kind);
    EXPECT_TRUE(loop ? measured && *measured == *loop : !measured) << name(kind);
  }
  EXPECT_TRUE(same_bits(expected, all_logits(first, ids, 13)));
  EXPECT_TRUE(same_bits(expected, all_logits(second, ids, 13)));
}

TEST_F(Tune, ForceMeasuresAtEveryStart) {
  if (!has_choice()) GTEST_SKIP() << "the reference kernels have one loop";
  for (int start = 0; start < 2; ++start) {
    LoadedModel model(options_of_model(testing::tiny_model(), TuneMode::kForce));
    EXPECT_TRUE(measured_);
    EXPECT_GT(fs::file_size(path_), 0u);
  }
}

TEST_F(Tune, AutoLeavesSmallModelsAsTheyAre) {
  const LoadedModel model(options_of_model(testing::tiny_model(), TuneMode::kAuto));
  EXPECT_FALSE(measured_);
  EXPECT_FALSE(fs::exists(path_));
  for (const auto& [kind, loop] : chosen(model)) EXPECT_EQ(loop, nullptr) << name(kind);
}

TEST_F(Tune, OffNeitherReadsNorWritesTheFile) {
  for (const char* before : {"", "damaged"}) {
    write(before);
    const LoadedModel model(options_of_model(large_model(), TuneMode::kOff));
    EXPECT_FALSE(measured_);
    EXPECT_EQ(text(), before);
    for (const auto& [kind, loop] : chosen(model)) EXPECT_EQ(loop, nullptr) << name(kind);
  }
}

TEST_F(Tune, WithoutAFileMeasuresNothing) {
  EngineOptions o = options_of_model(large_model(), TuneMode::kForce);
  o.tuning_file.clear();
  const LoadedModel model(o);
  EXPECT_FALSE(measured_);
}

TEST_F(Tune, UsesTheLoopThatTheFileNames) {
  if (!has_choice()) GTEST_SKIP() << "the reference kernels have one loop";
  Choices choices;
  {
    const LoadedModel model(options_of_model(large_model(), TuneMode::kOff));
    for (const TunedMatrix& m : tuned_matrices(model.target, model.plan.activation_type)) {
      for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
        const LinearKind kind = linear_kind(*m.weights, m.inputs, rows);
        const auto loops = loops_of(model.runtime.cpu.compute(Activations::kF32).kernels, *m.weights, kind);
        if (loops.size() > 1) choices[name(kind)] = name(loops.back());
      }
    }
    TuningFile(path_, tuning_machine(model.runtime.cpu.compute(Activations::kInt8)), [](const std::string&) {
    }).save(choices);
  }
  const LoadedModel model(options_of_model(large_model(), TuneMode::kAuto));
  EXPECT_FALSE(measured_);
  for (const auto& [kind, loop] : chosen(model)) EXPECT_EQ(loop ? name(*loop) : "", choices[name(kind)]) << name(kind);
}

TEST(Tuning, NoLoopChangesABit) {
  const TokenIds ids = testing::random_tokens(1, 75);
  const std::vector<std::string> models = {testing::tiny_model(TensorType::Q4_1), testing::tiny_model(TensorType::Q6_K),
                                           testing::golden_kind("mistral"), testing::golden_kind("gpt_oss")};
  for (const KernelSet* kernels : available_kernels().subspan(1)) {
    for (const std::string& path : models) {
      for (const char* activations : {"int8", "int8x2", "bf16", "f32"}) {
        EngineOptions o = options_of_model(path);
        o.kernels = kernels->name;
        o.activations = activations;
        LoadedModel model(o, 128);
        const std::vector<float> expected = all_logits(model, ids, 64);
        const std::vector<TunedMatrix> matrices = tuned_matrices(model.target, model.plan.activation_type);
        size_t most = 1;
        for (size_t i = 0; i < most; ++i) {
          for (const TunedMatrix& m : matrices) {
            for (int rows = 1; rows <= kMostTunedRows; rows *= 2) {
              const LinearKind kind = linear_kind(*m.weights, m.inputs, rows);
              const auto loops = loops_of(*kernels, *m.weights, kind);
              model.runtime.tuning.choose(kind, loops[i % loops.size()]);
              most = std::max(most, loops.size());
            }
          }
          for (const int chunk : {1, 5, 11, 33, 75}) {
            EXPECT_TRUE(same_bits(expected, all_logits(model, ids, chunk)))
                << path << " " << kernels->name << " " << activations << " loop " << i << " chunk " << chunk;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
