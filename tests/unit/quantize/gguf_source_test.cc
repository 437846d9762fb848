// GGUF files as Hugging Face directories.
#include "quantize/hf/gguf_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "error_of.h"
#include "model/convert/convert.h"
#include "model/model_text.h"
#include "model/synth.h"
#include "text/convert/to_gguf.h"
#include "unit/model/bare_model.h"
#include "unit/quantize/hf_test_models.h"

namespace quire {
namespace {

class GgufSource : public testing::HfFolder, public ::testing::WithParamInterface<const char*> {
 protected:
  // A directory of the repository as a GGUF file without a vocabulary.
  std::filesystem::path gguf_of(const char* model) {
    const std::filesystem::path file = at(std::string(model) + ".gguf");
    convert_checkpoint(Checkpoint::open(testing::hf_model(model)), file, {}, team_);
    return file;
  }
  WrittenModel write(const std::filesystem::path& from, const char* method_name = "rtn-int8") {
    const Checkpoint checkpoint = Checkpoint::open(from);
    const ModelSource source = open_model_source(checkpoint);
    warnings_ = source.warnings;
    const HfMethod& method = find_hf_method(method_name);
    const HfPlan plan = plan_hf_model(source, method, method.defaults, true);
    return write_hf_model(source, plan, {}, at("out"), true, team_, testing::ignore_progress);
  }
  std::vector<std::string> warnings_;
};

// int8 rows lose little, a wrong order of rows or a wrong setting everything.
TEST_P(GgufSource, IsTheSameModelAsADirectory) {
  const std::filesystem::path file = gguf_of(GetParam());
  write(file);
  const std::vector<float> before = testing::logits_of(file), after = testing::logits_of(at("out"));
  double lost = 0, all = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    lost += std::pow(static_cast<double>(before[i]) - after[i], 2);
    all += std::pow(static_cast<double>(before[i]), 2);
  }
  EXPECT_LT(std::sqrt(lost / all), 0.08) << GetParam();
}
INSTANTIATE_TEST_SUITE_P(Models, GgufSource, ::testing::Values("llama", "llama_linear_rope", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(GgufSource, HasTheTensorsOfTheDirectoryThatItWasMadeOf) {
  for (const char* name : {"llama", "qwen2"}) {
    const Checkpoint gguf = Checkpoint::open(gguf_of(name)), directory = Checkpoint::open(testing::hf_model(name));
    const ModelSource a = open_model_source(gguf), b = open_model_source(directory);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const SourceTensor& tensor : b.tensors) {
      const auto same = std::ranges::find(a.tensors, tensor.name, &SourceTensor::name);
      ASSERT_NE(same, a.tensors.end()) << tensor.name;
      EXPECT_EQ(same->shape, tensor.shape);
      EXPECT_EQ(read_source(a, *same).values, read_source(b, tensor).values) << tensor.name;
    }
    for (const char* key : {"hidden_size", "rms_norm_eps", "vocab_size", "tie_word_embeddings", "num_key_value_heads"})
      EXPECT_EQ(a.config_json.at(key), b.config_json.at(key)) << key;
  }
}

TEST_F(GgufSource, KeepsItsVocabulary) {
  const std::filesystem::path file = golden_dir() / "converted/llama_q8_0.gguf";
  write(file);
  const Checkpoint before = Checkpoint::open(file), after = Checkpoint::open(at("out"));
  EXPECT_EQ(warnings_,
            std::vector<std::string>{
                "the weights are quantized already; they are dequantized first, so what was lost stays lost"});
  const ModelText a = load_model_text(before), b = load_model_text(after);
  ASSERT_TRUE(a.tokenizer && b.tokenizer);
  const TokenizerDifference difference = compare_tokenizers(*a.tokenizer, *b.tokenizer);
  EXPECT_EQ(difference.ordinary, "");
  EXPECT_EQ(difference.unusual, "");
  EXPECT_EQ(a.template_source, b.template_source);
}

TEST_F(GgufSource, SaysThatItHasNoTokenizer) {
  write(gguf_of("llama"));
  EXPECT_FALSE(std::filesystem::exists(at("out") / "tokenizer.json"));
  EXPECT_EQ(warnings_, std::vector<std::string>{"the file has no vocabulary, so the directory has no tokenizer"});
  write(golden_dir() / "models-gguf/qwen2.gguf");  // its merges are of no tokens
  EXPECT_FALSE(std::filesystem::exists(at("out") / "tokenizer.json"));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("the directory has no tokenizer"), std::string::npos) << warnings_[0];
}

TEST_F(GgufSource, OfOtherModelsIsRefused) {
  const auto refusal = [&](const std::filesystem::path& path) {
    return error_of([&] { open_model_source(Checkpoint::open(path)); });
  };
  EXPECT_NE(refusal(golden_dir() / "models-gguf/glm4.gguf").find("of architecture 'glm4' cannot be written"),
            std::string::npos);
  SynthShape shape{"tiny", 2, 256, 6, 2, 32, 512, 320, 512, 10000, false};
  shape.experts = 4;
  shape.experts_used = 2;
  write_synthetic_model(at("experts.gguf").string(), shape, TensorType::F32, 5);
  EXPECT_NE(refusal(at("experts.gguf")).find("the layers have experts"), std::string::npos);
  shape.experts = shape.experts_used = 0;
  shape.window = 64;
  write_synthetic_model(at("window.gguf").string(), shape, TensorType::F32, 5);
  EXPECT_NE(refusal(at("window.gguf")).find("config.json would lose its sliding windows"), std::string::npos)
      << refusal(at("window.gguf"));
}

}  // namespace
}  // namespace quire
