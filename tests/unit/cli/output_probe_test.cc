// Exchanging the matrices of a model for those of a quantized file, and measuring how far its output moves.
#include "cli/quantize/output_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/team.h"
#include "cli/logit_distance.h"
#include "cli/text/chunk_run.h"
#include "paths.h"
#include "quantize/quantize.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

EngineOptions options_of(const fs::path& model) {
  EngineOptions options;
  options.model = model.string();
  options.threads = 2;
  options.activations = "f32";
  options.kv_cache_dtype = "f32";
  return one_chunk_at_a_time(std::move(options), 24);
}

// A model, and the same in another type.
class TwoFiles {
 public:
  explicit TwoFiles(const fs::path& original, const std::string& type = "Q8_0")
      : original_(Checkpoint::open(original)),
        path_(fs::temp_directory_path() / ("quire-probe-" + std::to_string(::getpid()) + "-" + type + ".gguf")) {
    QuantizeOptions options{.mix = &find_mix(type), .pure = true};
    QuantizePlan plan = plan_quantization(original_, options);
    Team team(2);
    write_quantized(original_, plan, options, path_, team, [](size_t, size_t) {});
    for (const TensorChange& change : plan.changes) {
      if (change.from != name(change.to)) changed_.push_back(change.name);
    }
  }
  ~TwoFiles() { fs::remove(path_); }

  const Checkpoint& original() const { return original_; }
  const fs::path& path() const { return path_; }
  const std::vector<std::string>& changed() const { return changed_; }

 private:
  const Checkpoint original_;
  const fs::path path_;
  std::vector<std::string> changed_;
};

std::vector<float> logits_of(LoadedModel& model, std::span<const TokenId> ids) {
  SingleSequence sequence(model);
  const auto logits = sequence.append(ids, true);
  return {logits.begin(), logits.end()};
}

TextChunks some_text(LoadedModel& model) {
  return written_by_model(model, 24, 2, [](size_t, size_t) {});
}

// Plain, tied, fused, latent attention, experts, recurrent layers.
TEST(ExchangedTensorsOfModels, GiveTheLogitsOfTheFileThatTheyComeFrom) {
  int found = 0;
  for (const char* name :
       {"llama", "qwen2", "phi3", "gpt_neox", "bloom", "deepseek_v3", "mixtral", "glm4_moe", "granitemoehybrid"}) {
    for (const fs::path& folder : golden_folders("models-gguf")) {
      const fs::path path = folder / (std::string(name) + ".gguf");
      if (!fs::exists(path)) continue;
      ++found;
      const TwoFiles files(path);
      ASSERT_FALSE(files.changed().empty()) << name;
      LoadedModel model(options_of(path), kScoredRows), other(options_of(files.path()), kScoredRows);
      const Checkpoint quantized = Checkpoint::open(files.path());
      const auto matrices = matrices_of_tensors(files.original(), model.target.config, model.target.weights);
      const auto others = matrices_of_tensors(quantized, other.target.config, other.target.weights);
      const TextChunks text = some_text(model);
      const auto before = logits_of(model, text.chunk(0)), expected = logits_of(other, text.chunk(0));
      EXPECT_NE(before, expected) << name;
      {
        const ExchangedTensors exchanged(matrices, others, files.changed());
        EXPECT_EQ(logits_of(model, text.chunk(0)), expected) << name;
      }
      EXPECT_EQ(logits_of(model, text.chunk(0)), before) << name;
      break;
    }
  }
  if (found == 0) GTEST_SKIP() << "no GGUF models";
}

TEST(OutputProbes, MeasureTheDivergenceOfTheRowsAfterTheFirstQuarter) {
  const TwoFiles eight(golden_dir() / "models/llama"), four(eight.path(), "Q4_0");
  LoadedModel model(options_of(eight.path()), kScoredRows), other(options_of(four.path()), kScoredRows);
  const Checkpoint quantized = Checkpoint::open(four.path());
  const auto matrices = matrices_of_tensors(four.original(), model.target.config, model.target.weights);
  const auto others = matrices_of_tensors(quantized, other.target.config, other.target.weights);
  const TextChunks text = some_text(model);
  OutputProbe probe(model, text);
  EXPECT_EQ(probe.rows(), 24u - 6 - 1);
  for (size_t chunk = 0; chunk < text.count(); ++chunk) {
    probe.set_reference(chunk);
    EXPECT_NEAR(probe.divergence(), 0, 1e-6);
    const auto before = logits_of(model, text.chunk(chunk)), after = logits_of(other, text.chunk(chunk));
    const size_t vocab = before.size() / 24;
    const auto row_of = [&](const std::vector<float>& logits, size_t row) {
      return std::span(logits).subspan(row * vocab, vocab);
    };
    double expected = 0;
    for (size_t row = 6; row < 23; ++row) expected += kl_divergence(row_of(before, row), row_of(after, row));
    EXPECT_GT(expected, 0.01);
    const ExchangedTensors exchanged(matrices, others, four.changed());
    EXPECT_NEAR(probe.divergence(), expected, 1e-5 * expected + 1e-6);
  }
}

TEST(TextsOfModels, AreTheSameEachTimeAndHaveTheirSize) {
  const TwoFiles files(golden_dir() / "models/llama");
  LoadedModel model(options_of(files.path()), kScoredRows);
  const TextChunks text = some_text(model);
  EXPECT_EQ(text.count(), 2u);
  EXPECT_EQ(text.size, 24u);
  EXPECT_EQ(text.ids, some_text(model).ids);
  EXPECT_NE(TokenIds(text.chunk(0).begin(), text.chunk(0).end()), TokenIds(text.chunk(1).begin(), text.chunk(1).end()));
}

}  // namespace
}  // namespace quire
