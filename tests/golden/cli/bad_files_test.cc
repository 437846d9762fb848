// Tensors and files that are missing, unknown, misshapen or damaged: loading refuses them with a message that names them,
// and inspecting says the same, except of what only the data shows.

#include <cmath>
#include <cstring>
#include <limits>

#include "golden/cli/refusals.h"
#include "unit/model/edited_model.h"
#include "unit/model/tiny_gguf.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::EditedModel;
using testing::EditedTensor;
using testing::expect_refused;
using testing::GgufFile;
using testing::kBf16Infinity;
using testing::kBf16Nan;
using testing::kF16Infinity;
using testing::kF16Nan;
using testing::message_of_inspecting;
using testing::message_of_loading;
using testing::overwrite;
using testing::SeenBy;
using testing::shortened;
using testing::TinyGguf;

// ---- tensors

template <class T>
void put(EditedTensor& t, size_t element, T value) {
  std::memcpy(t.bytes.data() + element * sizeof value, &value, sizeof value);
}
void convert(EditedTensor& t, const char* type, size_t bytes) {
  size_t elements = 1;
  for (const uint64_t n : t.shape) elements *= n;
  t.type = type;
  t.bytes.assign(elements * bytes, '\0');
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct TensorCase {
  const char* what;
  const char* model;
  std::function<void(EditedModel&)> edit;
  const char* message;
  SeenBy seen_by = SeenBy::kBoth;
};

std::vector<TensorCase> tensor_cases() {
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  return {
      {"a missing matrix", "llama", [=](EditedModel& m) { m.tensors.erase(q); },
       "M: tensor model.layers.1.self_attn.q_proj.weight is missing"},
      {"a missing norm", "llama", [](EditedModel& m) { m.tensors.erase("model.norm.weight"); },
       "M: tensor model.norm.weight is missing"},
      {"a missing head", "llama", [](EditedModel& m) { m.tensors.erase("lm_head.weight"); },
       "M: tensor lm_head.weight is missing"},
      {"a missing embedding", "llama", [](EditedModel& m) { m.tensors.erase("model.embed_tokens.weight"); },
       "M: tensor model.embed_tokens.weight is missing"},
      {"a missing matrix of a quantized model", "llama",
       [=](EditedModel& m) {
         m.tensors.erase(q);
         m.config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
       },
       "M: tensor model.layers.1.self_attn.q_proj.weight is missing"},
      {"another name", "llama",
       [=](EditedModel& m) { m.tensors["model.layers.1.self_attn.query.weight"] = m.tensors.extract(q).mapped(); },
       "M: tensor model.layers.1.self_attn.q_proj.weight is missing"},
      {"a tensor too many", "llama", [=](EditedModel& m) { m.tensors["model.layers.1.extra.weight"] = m.tensors[q]; },
       "M: unexpected tensor model.layers.1.extra.weight: Quire's llama architecture does not use it"},
      {"a norm of queries that the family does not have", "llama",
       [](EditedModel& m) { m.tensors["model.layers.0.self_attn.q_norm.weight"] = m.tensors["model.norm.weight"]; },
       "M: unexpected tensor model.layers.0.self_attn.q_norm.weight: Quire's llama architecture does not use it"},
      {"a transposed shape", "llama",
       [](EditedModel& m) {
         auto& shape = m.tensors["model.layers.0.mlp.down_proj.weight"].shape;
         std::swap(shape[0], shape[1]);
       },
       "M: tensor model.layers.0.mlp.down_proj.weight has shape [160, 64], expected [64, 160]"},
      {"a flat shape", "llama", [=](EditedModel& m) { m.tensors[q].shape = {64 * 64}; },
       "M: tensor model.layers.1.self_attn.q_proj.weight has shape [4096], expected [64, 64]"},
      {"a short norm", "llama",
       [](EditedModel& m) {
         m.tensors["model.norm.weight"].shape = {1, 63};
         m.tensors["model.norm.weight"].bytes.resize(63 * 2);
       },
       "M: tensor model.norm.weight has shape [1, 63], expected [64]"},
      {"integers", "llama", [=](EditedModel& m) { convert(m.tensors[q], "I32", 4); },
       "M: tensor model.layers.1.self_attn.q_proj.weight has type I32, which Quire cannot load"},
      {"bytes of float8", "llama", [=](EditedModel& m) { convert(m.tensors[q], "F8_E4M3", 1); },
       "M: tensor model.layers.1.self_attn.q_proj.weight has type F8_E4M3, which Quire cannot load"},
      {"an unknown type", "llama", [=](EditedModel& m) { m.tensors[q].type = "F12"; },
       "M/model.safetensors: tensor \"model.layers.1.self_attn.q_proj.weight\": dtype \"F12\" is unknown"},
      {"fewer experts in one tensor", "gpt_oss",
       [](EditedModel& m) {
         auto& t = m.tensors["model.layers.0.mlp.experts.down_proj"];
         t.shape[0] = 4;
         t.bytes.resize(t.bytes.size() / 2);
       },
       "M: tensor model.layers.0.mlp.experts.down_proj has shape [4, 56, 64], expected [8, 56, 64]"},
      {"experts' biases of the wrong size", "gpt_oss",
       [](EditedModel& m) {
         auto& t = m.tensors["model.layers.0.mlp.experts.down_proj_bias"];
         t.shape[0] = 4;
         t.bytes.resize(t.bytes.size() / 2);
       },
       "M: tensor model.layers.0.mlp.experts.down_proj_bias has shape [4, 64], expected [8, 64]"},
      {"missing sinks", "gpt_oss", [](EditedModel& m) { m.tensors.erase("model.layers.1.self_attn.sinks"); },
       "M: tensor model.layers.1.self_attn.sinks is missing"},
      {"a missing expert", "glm4_moe",
       [](EditedModel& m) { m.tensors.erase("model.layers.1.mlp.experts.3.up_proj.weight"); },
       "M: tensor model.layers.1.mlp.experts.3.up_proj.weight is missing"},
      {"a missing correction", "deepseek_v3",
       [](EditedModel& m) { m.tensors.erase("model.layers.1.mlp.gate.e_score_correction_bias"); },
       "M: tensor model.layers.1.mlp.gate.e_score_correction_bias is missing"},
      {"NaN in a norm", "llama",
       [](EditedModel& m) {
         auto& t = m.tensors["model.layers.2.input_layernorm.weight"];
         convert(t, "F32", 4);
         put(t, 7, std::nanf(""));
       },
       "M: tensor model.layers.2.input_layernorm.weight has the value nan at index 7; the file is damaged",
       SeenBy::kLoading},
      {"infinity in a norm", "llama",
       [](EditedModel& m) {
         auto& t = m.tensors["model.norm.weight"];
         convert(t, "F32", 4);
         put(t, 63, -kInfinity);
       },
       "M: tensor model.norm.weight has the value -inf at index 63; the file is damaged", SeenBy::kLoading},
      {"NaN in a bf16 matrix", "llama",
       [=](EditedModel& m) {
         convert(m.tensors[q], "BF16", 2);
         put(m.tensors[q], 37 * 64 + 63, kBf16Nan);
       },
       "M: tensor model.layers.1.self_attn.q_proj.weight has the value nan in row 37; the file is damaged",
       SeenBy::kLoading},
      {"infinity in bf16 embeddings", "llama",
       [](EditedModel& m) {
         auto& t = m.tensors["model.embed_tokens.weight"];
         convert(t, "BF16", 2);
         put(t, 319 * 64, kBf16Infinity);
       },
       "M: tensor model.embed_tokens.weight has the value inf in row 319; the file is damaged", SeenBy::kLoading},
      {"infinity in an f16 matrix", "llama",
       [=](EditedModel& m) {
         convert(m.tensors[q], "F16", 2);
         put(m.tensors[q], 0, kF16Infinity);
       },
       "M: tensor model.layers.1.self_attn.q_proj.weight has the value inf in row 0; the file is damaged",
       SeenBy::kLoading},
      {"NaN in an f32 matrix", "llama",
       [=](EditedModel& m) {
         convert(m.tensors[q], "F32", 4);
         put(m.tensors[q], 5 * 64 + 1, std::nanf(""));
       },
       "M: tensor model.layers.1.self_attn.q_proj.weight has the value nan in row 5; the file is damaged",
       SeenBy::kLoading},
      {"NaN in an expert", "gpt_oss",
       [](EditedModel& m) {
         auto& t = m.tensors["model.layers.0.mlp.experts.down_proj"];  // [8, 56, 64], transposed
         convert(t, "F32", 4);
         put(t, (3 * 56 + 1) * 64 + 9, std::nanf(""));
       },
       "M: tensor model.layers.0.mlp.experts.down_proj has the value nan in column 9 of matrix 3; the file is damaged",
       SeenBy::kLoading},
  };
}

TEST(BadTensors, AreRefused) {
  for (const TensorCase& c : tensor_cases()) {
    SCOPED_TRACE(c.what);
    EditedModel model(c.model);
    c.edit(model);
    expect_refused(model.write(), c.message, c.seen_by);
  }
}

// The largest number of each type is no infinity.
TEST(Tensors, MayHaveTheLargestNumbers) {
  EditedModel model("llama");
  auto& t = model.tensors["model.layers.1.self_attn.q_proj.weight"];
  convert(t, "F16", 2);
  put(t, 9, uint16_t{0x7BFF});
  auto& embedding = model.tensors["model.embed_tokens.weight"];
  convert(embedding, "BF16", 2);
  put(embedding, 9, uint16_t{0xFF7F});
  EXPECT_EQ(message_of_loading(model.write()), "accepted");
}

// ---- other files, and damaged ones

struct FileCase {
  const char* what;
  std::function<void(EditedModel&)> edit;          // before the directory is written
  std::function<void(const EditedModel&)> damage;  // after
  const char* message;
};

std::string tokenizer_of(int tokens) {
  json vocab;
  for (int i = 0; i < tokens; ++i) vocab["t" + std::to_string(i)] = i;
  return json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
              {"added_tokens", json::array()}}
      .dump();
}

// The weights become a shard of an index.
void write_index(const EditedModel& model, const std::string& tensor, const std::string& shard) {
  const fs::path folder = model.weights().parent_path();
  fs::rename(model.weights(), folder / "a.safetensors");
  json map;
  for (const auto& [name, t] : model.tensors) map[name] = "a.safetensors";
  map[tensor] = shard;
  overwrite(folder / "model.safetensors.index.json", json{{"weight_map", map}}.dump());
}

std::vector<FileCase> file_cases() {
  const auto nothing = [](auto&) {};
  return {
      {"a config.json that is no JSON", nothing,
       [](const EditedModel& m) { overwrite(m.weights().parent_path() / "config.json", "{\"hidden_size\": 64,"); },
       "M/config.json:1:20: expected a key in double quotes or '}'"},
      {"a config.json that is a list", nothing,
       [](const EditedModel& m) { overwrite(m.weights().parent_path() / "config.json", "[]"); },
       "M/config.json: expected an object, found an array"},
      {"an infinite setting", nothing,
       [](const EditedModel& m) { overwrite(m.weights().parent_path() / "config.json", "{\"rope_theta\": 1e999}"); },
       "M/config.json:1:16: number out of range"},
      {"a tokenizer that is larger than the vocabulary",
       [](EditedModel& m) { m.files["tokenizer.json"] = tokenizer_of(321); }, nothing,
       "M: the tokenizer has 321 tokens, but the model has 320"},
      {"a tokenizer that is no JSON", [](EditedModel& m) { m.files["tokenizer.json"] = "{"; }, nothing,
       "M/tokenizer.json:1:2: expected a key in double quotes or '}'"},
      {"a chat template with a mistake",
       [](EditedModel& m) { m.files["tokenizer_config.json"] = R"({"chat_template": "{% if %}"})"; }, nothing,
       "M: chat template:1: expected an expression, found '%}'"},
      {"an unknown architecture with a relative",
       [](EditedModel& m) { m.config["architectures"] = {"Llama9ForCausalLM"}; }, nothing,
       "M: architecture 'Llama9ForCausalLM' is not supported, but LlamaForCausalLM is"},
      {"an unknown architecture", [](EditedModel& m) { m.config["architectures"] = {"RwkvForCausalLM"}; }, nothing,
       "M: architecture 'RwkvForCausalLM' is not supported"},
  };
}

TEST(BadFiles, AreRefusedIfTheyDoNotFit) {
  for (const FileCase& c : file_cases()) {
    SCOPED_TRACE(c.what);
    EditedModel model("llama");
    c.edit(model);
    const fs::path path = model.write();
    c.damage(model);
    std::string supported = "; supported: ";  // the list grows
    for (std::string message : {message_of_loading(path), message_of_inspecting(path)}) {
      message = shortened(message, path);
      EXPECT_EQ(message.substr(0, message.find(supported)), c.message);
    }
  }
}

TEST(BadFiles, AreRefusedIfWeightsAreCutOffOrLacking) {
  const std::pair<std::function<void(const EditedModel&)>, const char*> damages[] = {
      {[](const EditedModel& m) { fs::resize_file(m.weights(), fs::file_size(m.weights()) - 100); },
       "M/model.safetensors: tensor \"model.norm.weight\": data_offsets [340736, 340864] does not lie within the "
       "340764 bytes of data; was the file cut off?"},
      {[](const EditedModel& m) { fs::resize_file(m.weights(), 5); },
       "M/model.safetensors: not a safetensors file: it has 5 bytes, but the length of the header alone takes 8"},
      {[](const EditedModel& m) { std::ofstream(m.weights(), std::ios::app) << "more"; },
       "M/model.safetensors: 4 bytes after the last tensor do not belong to any tensor"},
      {[](const EditedModel& m) { overwrite(m.weights(), std::string(64, '\xFF')); },
       "M/model.safetensors: not a safetensors file: the header length 18446744073709551615 at offset 0 exceeds the "
       "file (64 bytes)"},
      {[](const EditedModel& m) { fs::remove(m.weights()); }, "M: holds no safetensors files"},
      {[](const EditedModel& m) { write_index(m, "model.norm.weight", "b.safetensors"); },
       "cannot open M/b.safetensors: No such file or directory"},
      {[](const EditedModel& m) { write_index(m, "model.norm.weight", "../a.safetensors"); },
       "M/model.safetensors.index.json: weight_map: tensor \"model.norm.weight\": \"../a.safetensors\" is not a plain "
       "file name"},
      {[](const EditedModel& m) { write_index(m, "model.other.weight", "a.safetensors"); },
       "M/model.safetensors.index.json: weight_map: tensor \"model.other.weight\" is not in M/a.safetensors (1 "
       "missing)"},
  };
  for (const auto& [damage, message] : damages) {
    EditedModel model("llama");
    const fs::path path = model.write();
    damage(model);
    expect_refused(path, message, SeenBy::kBoth);
  }
}

TEST(BadTensors, AreRefusedIfQuantizedWithScalesThatAreNotNumbers) {
  TinyGguf gguf;
  for (testing::TensorSpec& t : gguf.tensors) {
    if (t.name.find("norm") == std::string::npos) t.type = testing::kQ8_0;
  }
  std::string bytes = gguf.bytes();
  const size_t data = bytes.size() - [&] {
    size_t size = 0;
    for (const auto& t : gguf.tensors) size += (t.bytes() + 31) / 32 * 32;
    return size;
  }();
  EXPECT_EQ(message_of_loading(GgufFile(bytes).path), "accepted");
  // The first tensor is the embedding: a block of 34 bytes per row, its scale first.
  std::memcpy(bytes.data() + data + 6 * 34, &kF16Nan, sizeof kF16Nan);
  const GgufFile file(bytes);
  expect_refused(file.path, "M: tensor token_embd.weight has the value nan in row 6; the file is damaged",
                 SeenBy::kLoading);
}

}  // namespace
}  // namespace quire
