#include "plan/planned_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "error_of.h"
#include "model/families.h"
#include "paths.h"
#include "plan/hardware.h"
#include "plan/plan.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

PlannedModel planned_golden(const std::string& name) {
  return plan_checkpoint(Checkpoint::open(golden_dir() / name),
                         {.activations = Activations::kInt8x2, .kv = KvType::kBf16, .packed = true});
}

TEST(PlannedModel, TakesWhatLoadingTakes) {
  for (const char* name : {"models/llama", "models/gemma2", "models/phimoe", "models/deepseek_v3", "models/qwen3_next",
                           "models/mamba2", "models/lfm2", "models/gpt_oss", "formats/hf-models/llama-gptq-orders"}) {
    SCOPED_TRACE(name);
    const Checkpoint checkpoint = Checkpoint::open(golden_dir() / name);
    const ModelConfig config = read_model_config(checkpoint);
    const WeightTotals totals = check_weights(checkpoint, config);
    const PlannedModel model = planned_golden(name);
    EXPECT_EQ(model.weight_bytes(), static_cast<double>(totals.bytes));
    EXPECT_EQ(model.parameters(), totals.parameters);
  }
}

class ConfigFile : public ::testing::Test {
 protected:
  std::string write(const std::string& json) {
    const fs::path path = fs::path(::testing::TempDir()) / "plan_config.json";
    std::ofstream(path) << json;
    return path.string();
  }
  PlannedModel plan(const std::string& json, std::optional<WeightStorage> storage = std::nullopt) {
    return plan_config_file(write(json), storage, {});
  }
  std::string refused(const std::string& json) {
    return error_of([&] { plan(json); });
  }
};

constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
  "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"})";

TEST_F(ConfigFile, OfAKnownFamilyNeedsNoOtherFile) {
  const PlannedModel model = plan(kLlama);
  EXPECT_EQ(model.parameters(), 8030261248u);  // of Meta-Llama-3-8B
  EXPECT_EQ(model.types[0].type, "BF16");
  EXPECT_TRUE(model.assumptions.empty());
}

TEST_F(ConfigFile, OfAnUnknownFamilyIsPlannedByItsShape) {
  std::string unknown = kLlama;
  unknown.replace(unknown.find("LlamaForCausalLM"), 16, "ZebraForCausalLM");
  const PlannedModel model = plan(unknown, WeightStorage{.type = TensorType::Q8_0});
  EXPECT_EQ(model.parameters(), 8030261248u);
  ASSERT_EQ(model.assumptions.size(), 1u);
  EXPECT_NE(model.assumptions[0].find("ZebraForCausalLM"), std::string::npos);
}

TEST_F(ConfigFile, IsRefusedByTheFieldThatSaysItIsAnotherKindOfModel) {
  const auto with = [](const std::string& field) {
    return R"({"architectures": ["Zebra"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "vocab_size": 100, "intermediate_size": 96, )" +
           field + "}";
  };
  EXPECT_NE(refused(with(R"("mamba_d_state": 16)")).find("mamba_d_state: 16"), std::string::npos);
  EXPECT_NE(refused(with(R"("is_encoder_decoder": true)")).find("is_encoder_decoder"), std::string::npos);
  EXPECT_NE(refused(with(R"("layer_types": ["full_attention", "wkv"])")).find("layer_types[1]"), std::string::npos);
  EXPECT_NE(refused(with(R"("torch_dtype": "complex64")")).find("torch_dtype"), std::string::npos);
  EXPECT_EQ(plan(with(R"("mamba_d_state": 0)")).config.layers.size(), 2u);
}

TEST_F(ConfigFile, IsRefusedIfItIsHostile) {
  for (const char* json :
       {"[]", "{}", "{\"hidden_size\": 64}", R"({"hidden_size": 1e18, "vocab_size": 1, "num_attention_heads": 1})",
        R"({"hidden_size": -64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})",
        R"({"hidden_size": 64, "num_hidden_layers": 2000000000, "num_attention_heads": 4, "vocab_size": 100})",
        R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 0, "vocab_size": 100})",
        R"({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
            "num_experts": 2000000000, "num_experts_per_tok": 1, "intermediate_size": 8})"})
    EXPECT_NE(refused(json), "") << json;
}

TEST_F(ConfigFile, OfQuantizedWeightsNeedsTheirBits) {
  std::string json = kLlama;
  json.insert(json.size() - 1, R"(, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128})");
  EXPECT_NE(refused(json).find("--weights"), std::string::npos);
  EXPECT_NEAR(plan(json, WeightStorage{.bits = 4.25}).weight_bytes(), 8.03e9 * 4.25 / 8, 1e8);
}

TEST(Shapes, AreParsed) {
  EXPECT_EQ(parse_shape_config("llama-3.1-8b,layers=3").layers.size(), 3u);
  const auto refused = [](const char* text) { return error_of([&] { parse_shape_config(text); }); };
  EXPECT_NE(refused("llama-3.1-9b").find("Did you mean llama-3.1-8b?"), std::string::npos);
  EXPECT_NE(refused("layers=1,hidden=64").find("heads"), std::string::npos);
  EXPECT_NE(refused("layers=1,hidden=65,heads=4").find("not a multiple"), std::string::npos);
  for (const char* text : {"", ",", "layers", "layers=", "layers=1e9", "layers=99999999999999999999", "layers=-1",
                           "size=3", "layers=1,hidden=64,heads=4,kv-heads=3", "layers=08,hidden=64,heads=4",
                           "tied=maybe", "layers=1,hidden=64,heads=4,experts=4", "layers=1,llama-2-7b"})
    EXPECT_NE(refused(text), "") << text;
}

TEST(Hardware, IsComplete) {
  for (const Hardware& h : known_hardware()) {
    EXPECT_GT(h.memory, 0) << h.name;
    EXPECT_FALSE(h.source.empty()) << h.name;
    EXPECT_LE(h.rates.multiply_adds[0], h.rates.multiply_adds[1]) << h.name;
    EXPECT_LE(h.rates.multiply_adds[1], h.rates.multiply_adds[2]) << h.name;
  }
  EXPECT_EQ(times(find_hardware("a100"), 8).memory, 640e9);
}

TEST(Hardware, IsRefusedByField) {
  const auto refused = [](const std::string& json) { return error_of([&] { parse_hardware(json, "box.json"); }); };
  const std::string good =
      R"({"name": "box", "memory_gb": 8, "bandwidth_gbs": 10, "tops": {"f32": 1}, "activations": "f32"})";
  EXPECT_EQ(refused(good), "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string json = good;
    return json.replace(json.find(from), from.size(), to);
  };
  EXPECT_NE(refused(changed("\"memory_gb\": 8", "\"memory_gb\": -8")).find("memory_gb"), std::string::npos);
  EXPECT_NE(refused(changed("\"f32\": 1}", "\"fp3\": 1}")).find("tops.fp3"), std::string::npos);
  EXPECT_NE(refused(changed("\"f32\": 1}", "\"int8\": 1}")).find("must have f32"), std::string::npos);
  EXPECT_NE(refused(changed("\"activations\": \"f32\"", "\"activations\": \"u2\"")).find("activations"),
            std::string::npos);
}

TEST(Plan, CountsTheUsersThatFit) {
  const PlannedModel model = plan_config("7b", parse_shape_config("llama-2-7b"), {.type = TensorType::F16}, {});
  const Hardware h100 = find_hardware("h100");
  const PlannedMachine machine{.rates = h100.rates, .memory = h100.memory};
  PlanRequest request{.users = 1, .prompt = 3840, .answer = 256};
  const Plan plan = make_plan(model, machine, {}, request);
  // 80 GB less 13.5 GB of weights, for caches of 2 GiB and activations.
  EXPECT_GE(plan.memory.most_users, 29);
  EXPECT_LE(plan.memory.most_users, 30);
  request.users = plan.memory.most_users;
  EXPECT_LE(make_plan(model, machine, {}, request).memory.total(), h100.memory);
  ++request.users;
  EXPECT_GT(make_plan(model, machine, {}, request).memory.total(), h100.memory);
}

TEST(Plan, RefusesMoreThanTheContext) {
  const PlannedModel model = plan_config("7b", parse_shape_config("llama-2-7b"), {}, {});
  EXPECT_NE(
      error_of([&] { make_plan(model, {.rates = find_hardware("a100").rates}, {}, {.prompt = 4096}); }).find("4096"),
      std::string::npos);
}

}  // namespace
}  // namespace quire
