// Hugging Face directories written as GGUF files: the same model.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/files/mapped_file.h"
#include "engine/single_sequence.h"
#include "error_of.h"
#include "format/gguf.h"
#include "golden/engine/expected_tensors.h"
#include "model/convert/convert.h"
#include "model/families.h"
#include "paths.h"
#include "quant/blocks.h"
#include "unit/model/edited_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::EditedModel;

class Folder {
 public:
  Folder() { fs::create_directories(path_); }
  ~Folder() { fs::remove_all(path_); }
  fs::path file(const std::string& name) const { return path_ / name; }

 private:
  const fs::path path_ = fs::temp_directory_path() / ("quire-convert-" + std::to_string(::getpid()));
};

Converted convert(const fs::path& from, const fs::path& to, std::optional<TensorType> type) {
  Team team(2);
  return convert_checkpoint(Checkpoint::open(from), to, {.type = type, .name = "golden"}, team);
}

LoadedModel load(const fs::path& path) {
  EngineOptions o;
  o.model = path.string();
  o.activations = "f32";
  o.threads = 2;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 128;
  o.max_model_len = 0;
  return LoadedModel(o, 128);
}

TokenIds prompt_of(const Safetensors& expected) {
  const std::string name = expected.find_tensor("prompt_2") ? "prompt_2" : "prompt_0";
  if (expected.find_tensor(name)->type == TensorType::I32) return values<int32_t>(expected, name);
  const auto wide = values<int64_t>(expected, name);
  return {wide.begin(), wide.end()};
}

bool is_convertible(const fs::path& folder) {
  const auto config = nlohmann::json::parse(read_text_file(folder / "config.json"));
  const std::string name = config["architectures"][0];
  const auto names = convertible_architectures();
  return std::ranges::find(names, name) != names.end();
}

// Settings that GGUF files cannot say, and what the refusal calls them.
const std::map<std::string, std::string> kLost = {{"falcon_alibi", "rotary positions"},
                                                  {"olmo3", "rotary positions"},
                                                  {"gemma2", "scale of attention"},
                                                  {"gemma3_text", "scale of attention"}};

class ConvertedModels : public ::testing::TestWithParam<fs::path> {};

TEST_P(ConvertedModels, HaveTheLogitsOfTheirDirectory) {
  const Folder folder;
  const fs::path from = GetParam(), to = folder.file("model.gguf");
  if (const auto lost = kLost.find(from.filename()); lost != kLost.end()) {
    const std::string message = error_of([&] { convert(from, to, std::nullopt); });
    EXPECT_TRUE(message.ends_with("cannot be written as GGUF: the file would lose its " + lost->second)) << message;
    EXPECT_TRUE(fs::is_empty(to.parent_path()));
    return;
  }
  convert(from, to, TensorType::F32);
  LoadedModel hf = load(from), gguf = load(to);
  const auto expected = Safetensors::open(from / "expected.safetensors");
  const TokenIds prompt = prompt_of(expected);
  SingleSequence one(hf), other(gguf);
  const auto a = one.append(prompt, true), b = other.append(prompt, true);
  const bool same_order =
      hf.target.config.ropes.empty() || hf.target.config.ropes[0].kind == gguf.target.config.ropes[0].kind;
  // Neither the order of rotated pairs nor 1 + w in float32 may be the same sum to the last bit.
  if (same_order && !hf.target.config.output_norm.plus_one) {
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
  } else {
    EXPECT_LE(largest_difference(a, b), 1e-4);
  }
}

std::vector<fs::path> convertible_folders() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(golden_dir() / "models")) {
    if (is_convertible(entry.path())) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Families, ConvertedModels, ::testing::ValuesIn(convertible_folders()),
                         [](const auto& folder) { return folder.param.filename().string(); });

// llama.cpp's converter, or its names, have made files of the same models: all tensors are the same numbers.
TEST(ConvertedTensors, AreThoseOfLlamaCppsConverter) {
  const Folder folder;
  std::vector<std::pair<fs::path, fs::path>> pairs;
  for (const char* kind : {"models", "encoders"}) {
    for (const auto& entry : fs::directory_iterator(golden_dir() / (std::string(kind) + "-gguf"))) {
      const fs::path folder_of_twin = golden_dir() / kind / entry.path().stem();
      if (entry.path().extension() == ".gguf" && is_convertible(folder_of_twin))
        pairs.emplace_back(folder_of_twin, entry.path());
    }
  }
  for (const auto& [from, twin] : pairs) {
    SCOPED_TRACE(from.filename().string());
    convert(from, folder.file("model.gguf"), TensorType::F32);
    const Gguf ours = Gguf::open(folder.file("model.gguf")), theirs = Gguf::open(twin);
    EXPECT_EQ(ours.tensors().size(), theirs.tensors().size());
    for (const TensorView& wanted : theirs.tensors()) {
      const TensorView* got = ours.find_tensor(wanted.name);
      ASSERT_NE(got, nullptr) << wanted.name;
      ASSERT_EQ(got->type, TensorType::F32);
      std::vector<float> expected(got->bytes.size() / sizeof(float)), values(expected.size());
      dequantize(wanted.type, wanted.bytes, expected);
      std::memcpy(values.data(), got->bytes.data(), got->bytes.size());
      EXPECT_EQ(values, expected) << wanted.name;
    }
  }
  EXPECT_GE(pairs.size(), 13u);
}

// gguf-py and llama.cpp have read this file; gguf-py quantizes the weights to the same blocks.
TEST(ConvertedFile, IsTheSameToTheByte) {
  const Folder folder;
  EditedModel model("llama");
  model.config["bos_token_id"] = 247;
  model.config["eos_token_id"] = 248;
  model.files["tokenizer.json"] = read_text_file(golden_dir() / "converted/tokenizer.json");
  model.files["tokenizer_config.json"] = read_text_file(golden_dir() / "converted/tokenizer_config.json");
  const Converted converted = convert(model.write(), folder.file("model.gguf"), TensorType::Q8_0);
  EXPECT_TRUE(converted.warnings.empty());
  EXPECT_EQ(read_text_file(folder.file("model.gguf")), read_text_file(golden_dir() / "converted/llama_q8_0.gguf"));
}

TEST(Conversion, KeepsEachTypeByDefault) {
  const Folder folder;
  EXPECT_EQ(convert(golden_dir() / "models/llama", folder.file("llama.gguf"), std::nullopt).type, TensorType::BF16);
  const Gguf file = Gguf::open(folder.file("llama.gguf"));
  EXPECT_EQ(file.find_tensor("blk.0.attn_q.weight")->type, TensorType::BF16);
  EXPECT_EQ(file.find_tensor("blk.0.attn_norm.weight")->type, TensorType::F32);
  EXPECT_EQ(file.get<int>("general.file_type"), 32);
  EXPECT_EQ(file.get<std::string>("general.name"), "golden");
  EXPECT_EQ(convert(golden_dir() / "models/gpt2", folder.file("gpt2.gguf"), std::nullopt).type, TensorType::F32);
}

TEST(Conversion, KeepsRowsThatAreNoWholeBlocksInF16) {
  const Folder folder;
  const fs::path from = golden_dir() / "models/mpt";  // 48 inputs
  convert(from, folder.file("model.gguf"), TensorType::Q8_0);
  EXPECT_EQ(Gguf::open(folder.file("model.gguf")).find_tensor("token_embd.weight")->type, TensorType::F16);
}

TEST(Conversion, RefusesWhatItCannotWriteAndLeavesNothing) {
  const Folder folder;
  const auto refusal = [&](const fs::path& from) {
    return error_of([&] { convert(from, folder.file("model.gguf"), TensorType::F16); });
  };
  const std::string unknown = refusal(golden_dir() / "models/mamba2");
  EXPECT_NE(unknown.find("architecture 'Mamba2ForCausalLM' cannot be written as GGUF yet; these can: LlamaForCausalLM"),
            std::string::npos)
      << unknown;
  EXPECT_NE(refusal(golden_dir() / "models-gguf/qwen2.gguf").find("is a GGUF file already"), std::string::npos);

  EditedModel quantized("llama");
  quantized.config["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_NE(refusal(quantized.write()).find("the weights are quantized"), std::string::npos);

  EditedModel damaged("llama");
  auto& weight = damaged.tensors["model.layers.1.mlp.up_proj.weight"];
  const uint16_t nan = 0x7fc0;
  std::memcpy(weight.bytes.data() + 20, &nan, sizeof nan);
  const std::string message = refusal(damaged.write());
  EXPECT_NE(message.find("tensor model.layers.1.mlp.up_proj.weight, row 0 has a value that is not finite"),
            std::string::npos)
      << message;
  EXPECT_TRUE(fs::is_empty(folder.file("model.gguf").parent_path()));
}

TEST(Conversion, KeepsThePoolingOfEncoders) {
  const Folder folder;
  const auto pooling = [&](const char* name, const char* key) {
    convert(golden_dir() / "encoders" / name, folder.file("model.gguf"), std::nullopt);
    return Gguf::open(folder.file("model.gguf")).get<int>(key);
  };
  EXPECT_EQ(pooling("bert_mean", "bert.pooling_type"), 1);
  EXPECT_EQ(pooling("bert", "bert.pooling_type"), 2);
  EXPECT_EQ(pooling("qwen3_embedding", "qwen3.pooling_type"), 3);
  const std::string classifier = error_of([&] { pooling("bert_cross", ""); });
  EXPECT_TRUE(classifier.ends_with("(classifiers, Dense modules) cannot be written as GGUF yet")) << classifier;
}

TEST(Conversion, WarnsOfWhatLlamaCppDoesOtherwise) {
  const Folder folder;
  const auto warning = [&](const char* name) {
    return convert(golden_dir() / "models" / name, folder.file("model.gguf"), std::nullopt).warnings.front();
  };
  EXPECT_EQ(warning("mistral"), "llama.cpp ignores the sliding window of 24 tokens, so its results will differ");
  EXPECT_EQ(warning("llama_yarn"), "llama.cpp ignores YaRN's beta_fast and beta_slow, so its results will differ");
  EXPECT_EQ(warning("olmoe"),
            "llama.cpp ignores the clipping of queries, keys and values at 1.2, so its results will differ");
  EXPECT_TRUE(warning("llama").ends_with("has no tokenizer.json, so the file has no vocabulary"));
}

TEST(Conversion, IsDocumentedForEachArchitecture) {
  const std::string page = read_text_file(source_dir() / "docs/convert.md");
  for (const std::string_view name : convertible_architectures())
    EXPECT_NE(page.find(fmt::format("`{}`", name)), page.npos) << name;
}

}  // namespace
}  // namespace quire
