// Checkpoints with layers for multi-token prediction: models load without them, and what does not fit is refused by name.

#include "speculate/network/mtp.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "error_of.h"
#include "model/families.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/model/edited_model.h"

namespace quire {
namespace {

using testing::EditedModel;

constexpr size_t kMemory = std::numeric_limits<size_t>::max();
constexpr std::string_view kLayer = "model.layers.3.";  // after the three layers of the golden model

std::string model_error(EditedModel& model) {
  const auto folder = model.write();
  return error_of(folder, [&] {
    const Checkpoint checkpoint = Checkpoint::open(folder);
    check_weights(checkpoint, read_model_config(checkpoint));
  });
}
FeatureLayer read(const std::filesystem::path& folder) {
  static Team team(1);
  static CpuBackend backend("auto", team);
  const Checkpoint checkpoint = Checkpoint::open(folder);
  return read_mtp(checkpoint, read_model_config(checkpoint), backend, team, kMemory);
}
FeatureTotals check(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  return check_mtp(checkpoint, read_model_config(checkpoint));
}
std::string layer_error(EditedModel& model) {
  const auto folder = model.write();
  const std::string text = error_of(folder, [&] { read(folder); });
  const bool is_of_numbers = text.find("has the value") != std::string::npos;  // which only reading tells
  EXPECT_EQ(error_of(folder, [&] { check(folder); }), is_of_numbers ? "" : text);
  return text;
}

TEST(LayersForMultiTokenPrediction, AreNoPartOfTheModel) {
  for (const std::string name : {"deepseek_v3", "glm4_moe", "qwen3_next"}) {
    const auto parameters = [](const std::filesystem::path& path) {
      const Checkpoint checkpoint = Checkpoint::open(path);
      return check_weights(checkpoint, read_model_config(checkpoint)).parameters;
    };
    EXPECT_EQ(parameters(golden_dir() / "drafters" / ("mtp_" + name)), parameters(golden_dir() / "models" / name))
        << name;
  }
}

TEST(LayersForMultiTokenPrediction, AreMeasuredWithoutBeingRead) {
  for (const std::string name : {"deepseek_v3", "glm4_moe", "qwen3_next"}) {
    SCOPED_TRACE(name);
    const auto path = golden_dir() / "drafters" / ("mtp_" + name);
    const FeatureLayer layer = read(path);
    const FeatureTotals totals = check(path);
    EXPECT_EQ(totals.config.layers.size(), 1u);
    const uint64_t copies = totals.output.bytes() * 2;
    EXPECT_GE(totals.bytes, layer.weights.matrix_bytes);
    EXPECT_LE(totals.bytes, layer.weights.matrix_bytes * 11 / 10 + copies) << "norms are small";
  }
}

TEST(LayersForMultiTokenPrediction, ThatConfigJsonDoesNotAnnounceAreUnexpected) {
  EditedModel model("../drafters/mtp_deepseek_v3");
  model.config["num_nextn_predict_layers"] = 0;
  EXPECT_EQ(model_error(model).find("FILE: unexpected tensor model.layers.3."), 0u);
  model.config["num_nextn_predict_layers"] = 2000;
  EXPECT_NE(model_error(model).find("the number of layers for multi-token prediction is 2000"), std::string::npos)
      << model_error(model);
}

TEST(LayersForMultiTokenPrediction, WithoutATensorAreRefused) {
  EditedModel whole("../drafters/mtp_deepseek_v3");
  int erased = 0;
  for (const auto& [name, tensor] : whole.tensors) {
    if (!name.starts_with(kLayer) || name.ends_with("embed_tokens.weight") || name.ends_with("shared_head.head.weight"))
      continue;
    EditedModel model("../drafters/mtp_deepseek_v3");
    model.tensors.erase(name);
    const bool whole_layer = name.ends_with("eh_proj.weight");
    EXPECT_EQ(layer_error(model),
              whole_layer
                  ? "FILE has no layer for multi-token prediction that Quire knows; use --speculative ngram, or a "
                    "drafter with files of its own"
                  : "FILE: tensor " + name + " is missing");
    EXPECT_EQ(model_error(model), "");
    ++erased;
  }
  EXPECT_GT(erased, 20);
}

TEST(LayersForMultiTokenPrediction, ThatDoNotFitTheModelAreRefused) {
  EditedModel model("../drafters/mtp_deepseek_v3");
  auto& projection = model.tensors["model.layers.3.eh_proj.weight"];
  projection.shape = {128, 64};
  EXPECT_EQ(layer_error(model), "FILE: tensor model.layers.3.eh_proj.weight has shape [128, 64], expected [64, 128]");
  projection.shape = {64, 128};
  projection.bytes.replace(2 * 130, 2, "\xC0\x7F");
  EXPECT_EQ(layer_error(model),
            "FILE: tensor model.layers.3.eh_proj.weight has the value nan in row 1; the file is damaged");
  model.tensors["model.layers.3.mlp.other.weight"] = projection;
  EXPECT_EQ(
      layer_error(model),
      "FILE: unexpected tensor model.layers.3.mlp.other.weight: Quire's deepseek_v3 architecture does not use it");
}

// The layer of Qwen3-Next has names outside the model's; they are not taken for those of the model's first layer.
TEST(LayersForMultiTokenPrediction, AreNotMixedUpWithLayersOfTheModel) {
  EditedModel model("../drafters/mtp_qwen3_next");
  std::map<std::string, testing::EditedTensor> tensors;
  for (const auto& [name, tensor] : model.tensors)
    tensors[name.starts_with("model.") ? name.substr(std::string_view("model.").size()) : name] = tensor;
  model.tensors = tensors;
  EXPECT_EQ(layer_error(model), "");
  model.tensors.erase("mtp.layers.0.input_layernorm.weight");
  EXPECT_EQ(layer_error(model), "FILE: tensor mtp.layers.0.input_layernorm.weight is missing");
}

TEST(LayersForMultiTokenPrediction, AfterTheFirstAreLeftAside) {
  EditedModel model("../drafters/mtp_deepseek_v3");
  model.config["num_nextn_predict_layers"] = 2;
  EXPECT_EQ(model_error(model), "");
  const auto tensors = model.tensors;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(kLayer)) model.tensors["model.layers.4." + name.substr(kLayer.size())] = tensor;
  }
  EXPECT_EQ(model_error(model), "");
  EXPECT_EQ(layer_error(model), "");
}

TEST(LayersForMultiTokenPrediction, UseTheModelsOutputMatrixWithoutOneOfTheirOwn) {
  EditedModel model("../drafters/mtp_deepseek_v3");
  EXPECT_TRUE(read(model.write()).config.joined_input->output);
  model.tensors["model.layers.3.shared_head.head.weight"] = model.tensors["lm_head.weight"];
  EXPECT_FALSE(read(model.write()).config.joined_input->output);
  model.tensors.erase("model.layers.3.shared_head.head.weight");
  EXPECT_FALSE(read(model.write()).config.joined_input->output);
  model.tensors["model.layers.3.embed_tokens.weight"].bytes[5] ^= 1;
  EXPECT_TRUE(read(model.write()).config.joined_input->embedding);
}

TEST(LayersForMultiTokenPrediction, KeepTheirOutputMatrixWhereTheModelsIsItsEmbedding) {
  EditedModel model("../drafters/mtp_deepseek_v3");
  model.config["tie_word_embeddings"] = true;
  model.tensors.erase("lm_head.weight");
  const FeatureLayer layer = read(model.write());
  EXPECT_TRUE(layer.config.joined_input->output);
  EXPECT_EQ(layer.weights.output.weight.rows, layer.config.vocab);
  EXPECT_NE(layer.weights.output.weight.data, nullptr);
}

TEST(LayersForMultiTokenPrediction, OfFamiliesThatHaveNoneAreNotThere) {
  for (const char* name : {"llama", "mamba2", "deepseek_v3", "qwen3_next"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_dir() / "models" / name);
    EXPECT_FALSE(has_predicting_layer(checkpoint, read_model_config(checkpoint))) << name;
  }
}

}  // namespace
}  // namespace quire
