// How checkpoints say what becomes of the hidden states of a prompt.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "model/families.h"
#include "model/pooled_output.h"
#include "paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A copy of a golden encoder that a test may change.
class Folder {
 public:
  explicit Folder(const char* name)
      : path_(fs::temp_directory_path() / ("quire-pooled-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::copy(golden_dir() / "encoders" / name, path_, fs::copy_options::recursive);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const char* file, const json& content) const { std::ofstream(path_ / file) << content; }
  json read(const char* file) const { return json::parse(std::ifstream(path_ / file)); }
  void remove(const char* file) const { fs::remove_all(path_ / file); }
  ModelConfig config() const { return read_model_config(Checkpoint::open(path_)); }
  // Without the folder's name.
  std::string error() const {
    std::string text = error_of([&] { config(); });
    for (size_t at; (at = text.find(path_.string())) != std::string::npos;)
      text.replace(at, path_.string().size(), "M");
    return text;
  }

 private:
  fs::path path_;
};

json module(const char* kind, const char* folder) {
  return {{"idx", 0}, {"name", "0"}, {"path", folder}, {"type", std::string("sentence_transformers.models.") + kind}};
}

TEST(PooledOutput, IsWhatTheModulesSay) {
  const Folder gemma("embedding_gemma");
  const ModelConfig c = gemma.config();
  EXPECT_EQ(c.pooled.pooling, Pooling::kMean);
  ASSERT_EQ(c.pooled.layers.size(), 2u);
  EXPECT_EQ(c.pooled.layers[0].name, "2_Dense.linear.weight");
  EXPECT_TRUE(is_bidirectional(c));
  EXPECT_FALSE(c.has_logits);
  EXPECT_EQ(Folder("bert").config().pooled.pooling, Pooling::kFirst);
  EXPECT_EQ(Folder("qwen3_embedding").config().pooled.pooling, Pooling::kLast);
}

TEST(PooledOutput, HasBothSpellingsOfPoolingModes) {
  const Folder bert("bert");
  bert.write("1_Pooling/config.json", {{"pooling_mode", "lasttoken"}});
  EXPECT_EQ(bert.config().pooled.pooling, Pooling::kLast);
  bert.write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}, {"pooling_mode_max_tokens", false}});
  EXPECT_EQ(bert.config().pooled.pooling, Pooling::kMean);
}

TEST(PooledOutput, RefusesModulesThatQuireLacks) {
  const Folder bert("bert");
  bert.write("1_Pooling/config.json", {{"pooling_mode_max_tokens", true}});
  EXPECT_EQ(bert.error(),
            "M/1_Pooling/config.json: pooling_mode_max_tokens: pooling by \"max_tokens\" is not supported; supported: "
            "one of cls, mean, lasttoken");
  bert.write("1_Pooling/config.json", {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
  EXPECT_NE(bert.error().find("supported: one of cls"), std::string::npos);
  bert.remove("1_Pooling/config.json");
  EXPECT_EQ(bert.error(), "M/1_Pooling/config.json is missing");
  bert.write("modules.json", {module("Transformer", ""), module("LSTM", "1_LSTM")});
  EXPECT_EQ(bert.error(),
            "M/modules.json: the module \"LSTM\" is not supported; supported: Transformer, Pooling, "
            "Dense, Normalize");
  bert.write("modules.json", json::array({module("Pooling", "../1_Pooling")}));
  EXPECT_EQ(bert.error(), "M/modules.json: [0].path: \"../1_Pooling\" is not the name of a folder");
  bert.write("modules.json", {{"path", 1}});
  EXPECT_NE(bert.error().find("M/modules.json: expected an array"), std::string::npos);
}

TEST(PooledOutput, RefusesDenseLayersThatQuireLacks) {
  const Folder gemma("embedding_gemma");
  json dense = gemma.read("2_Dense/config.json");
  dense["activation_function"] = "torch.nn.modules.activation.GELU";
  gemma.write("2_Dense/config.json", dense);
  EXPECT_EQ(gemma.error(),
            "M/2_Dense/config.json: activation_function: \"torch.nn.modules.activation.GELU\" is not supported; "
            "supported: Tanh, Identity");
  dense.erase("out_features");
  dense["activation_function"] = "torch.nn.modules.linear.Identity";
  gemma.write("2_Dense/config.json", dense);
  EXPECT_EQ(gemma.error(), "M/2_Dense/config.json: out_features is missing");
  gemma.remove("2_Dense/model.safetensors");
  EXPECT_EQ(gemma.error(), "M/2_Dense: holds no safetensors files");
}

TEST(PooledOutput, OfAClassifierIsAScore) {
  const Folder bert("bert_cross");
  EXPECT_EQ(bert.config().pooled.labels, 1);
  EXPECT_EQ(bert.config().pooled.score, Score::kRaw) << "as sbert_ce_default_activation_function says";
  json config = bert.read("config.json");
  config.erase("sbert_ce_default_activation_function");
  bert.write("config.json", config);
  EXPECT_EQ(bert.config().pooled.score, Score::kSigmoid);
  config["sentence_transformers"] = {{"activation_fn", "torch.nn.modules.linear.Identity"}};
  bert.write("config.json", config);
  EXPECT_EQ(bert.config().pooled.score, Score::kRaw);
  config["id2label"] = {{"0", "no"}, {"1", "maybe"}, {"2", "yes"}};
  config.erase("sentence_transformers");
  bert.write("config.json", config);
  EXPECT_EQ(bert.config().pooled.labels, 3);
  EXPECT_EQ(bert.config().pooled.score, Score::kRaw);
  EXPECT_NE(error_of([&] {
              const Checkpoint checkpoint = Checkpoint::open(golden_dir() / "encoders/bert_cross");
              check_weights(checkpoint, bert.config());
            }).find("classifier.weight has shape [1, 48], expected [3, 48]"),
            std::string::npos);
}

TEST(PooledOutput, FindsTheDecoderOfAModelWithoutItsHead) {
  EXPECT_EQ(decoder_of("Qwen3Model"), "Qwen3ForCausalLM");
  EXPECT_EQ(decoder_of("Gemma3TextModel"), "Gemma3ForCausalLM");
  EXPECT_EQ(decoder_of("LlamaForSequenceClassification"), "LlamaForCausalLM");
  EXPECT_EQ(decoder_of("GPT2LMHeadModel"), "GPT2LMHeadModel");
  EXPECT_EQ(decoder_of("Qwen3ForCausalLM"), "Qwen3ForCausalLM");
}

TEST(PooledOutput, NeedsTheWordsOfAYesNoReranker) {
  const Folder qwen("qwen3_embedding");
  json config = qwen.read("config.json");
  config["classifier_from_token"] = {"no", "yes"};
  qwen.write("config.json", config);
  qwen.write("tokenizer.json", {{"model", {{"vocab", {{"yes", 5}}}}}});
  EXPECT_EQ(qwen.error(), "M/tokenizer.json: model.vocab.no is missing");
  qwen.write("tokenizer.json", {{"model", {{"vocab", {{"yes", 5}, {"no", 256}}}}}});
  EXPECT_EQ(qwen.error(), "M/tokenizer.json: model.vocab: id 256 is outside the model's vocabulary");
  config["classifier_from_token"] = {"bad", "good"};
  qwen.write("config.json", config);
  EXPECT_EQ(qwen.error(),
            "M/config.json: classifier_from_token: [\"bad\",\"good\"] is not supported; supported: [\"no\", \"yes\"]");
}

}  // namespace
}  // namespace quire
