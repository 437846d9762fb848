// What families read of their files beyond the reference data of tests/golden: lists, defaults and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "error_of.h"
#include "unit/model/read_settings.h"
#include "unit/model/tiny_gguf.h"

namespace quire {
namespace {

// A GGUF file of one layer of 32 channels, with these further keys.
ModelConfig read_gguf(const std::string& architecture, std::map<std::string, testing::TinyGguf::Value> more,
                      std::vector<testing::TensorSpec> tensors = {}) {
  testing::TinyGguf file;
  auto keys = std::exchange(file.keys, {{"general.architecture", architecture}});
  keys.merge(more);
  for (const auto& [key, value] : keys) {
    if (key != "general.architecture")
      file.keys[architecture + "." + key.substr(key.rfind("llama.", 0) == 0 ? 6 : 0)] = value;
  }
  file.tensors.insert(file.tensors.end(), tensors.begin(), tensors.end());
  const std::string bytes = file.bytes();
  const Gguf gguf = Gguf::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  const GgufSettings settings(gguf);
  const auto known = std::ranges::find(families(), architecture, [](const Family* f) { return f->gguf_architecture; });
  const ModelConfig config = (*known)->from_gguf(settings);
  settings.refuse_unread();
  return config;
}

// "d" for a dense layer, "e" for one with experts.
std::string ffn_pattern(const ModelConfig& c) {
  std::string text;
  for (const LayerSpec& layer : c.layers) text += std::holds_alternative<Moe>(layer.ffn) ? 'e' : 'd';
  return text;
}

TEST(Hunyuan, TakesOneNumberOfExpertsForAllLayers) {
  const ModelConfig c = read_settings(
      "hunyuan_moe", R"(, "num_experts": 6, "moe_topk": [2, 2, 2, 2], "moe_intermediate_size": [8, 8, 8, 8])");
  const Moe& moe = std::get<Moe>(c.layers[3].ffn);
  EXPECT_EQ(moe.routing.used, 2);
  EXPECT_EQ(moe.size, 8);
  EXPECT_EQ(moe.shared_size, 80);
  EXPECT_EQ(error_of([] { read_settings("hunyuan_moe", R"(, "num_experts": 6, "moe_topk": [2, 2, 1, 2])"); }),
            "config.json: moe_topk: Quire supports the same number for all layers only");
}

TEST(Hunyuan, IgnoresSettingsThatItsFilesHaveInVain) {
  const ModelConfig c =
      read_settings("hunyuan", R"(, "num_experts": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "use_mla": false,
    "use_qk_norm": true, "use_cla": false, "moe_layer_num_skipped": 0, "rope_theta": 10000.0, "rope_scaling":
    {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "type": "dynamic"})");
  EXPECT_TRUE(std::get<Attention>(c.layers[0].mixer).norm_after_rope);
  EXPECT_EQ(c.ropes[0].scaling, RopeConfig::Scaling::kNone);
  EXPECT_NEAR(c.ropes[0].theta, 10000 * std::pow(1000, 16 / 14.0), 1);
  EXPECT_EQ(error_of([] { read_settings("hunyuan", R"(, "use_mla": true)"); }),
            "config.json: use_mla: true is not supported");
  EXPECT_EQ(error_of([] { read_settings("hunyuan", R"(, "num_experts": 4)"); }),
            "config.json: num_experts: 4 is not supported; Quire's hunyuan family has no experts");
}

TEST(Ernie, HasExpertsInEveryNthLayerOfARange) {
  const std::string experts = R"(, "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 8)";
  EXPECT_EQ(ffn_pattern(read_settings("ernie4_5_moe", experts)), "deee");
  EXPECT_EQ(ffn_pattern(read_settings("ernie4_5_moe", experts + R"(, "moe_layer_interval": 2)")), "dede");
  EXPECT_EQ(
      ffn_pattern(read_settings("ernie4_5_moe", experts + R"(, "moe_layer_start_index": 0, "moe_layer_end_index": 2)")),
      "eeed");
  EXPECT_EQ(error_of([&] { read_settings("ernie4_5", experts); }),
            "config.json: moe_num_experts: 6 is not supported; Quire's ernie4_5 family does not have it");
}

TEST(Glm, RotatesHalfOfEachHeadUnlessTheFileSaysWhatPart) {
  EXPECT_EQ(read_settings("glm4", "").ropes[0].dim, 8);
  EXPECT_EQ(read_settings("glm4", R"(, "partial_rotary_factor": 1.0)").ropes[0].dim, 16);
  EXPECT_EQ(read_settings("glm4", R"(, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25})")
                .ropes[0]
                .dim,
            4);
}

TEST(Mpt, RefusesAttentionThatItDoesNotHave) {
  for (const char* other :
       {R"("alibi": false)", R"("qk_ln": true)", R"("prefix_lm": true)", R"("attn_type": "multiquery_attention")"}) {
    EXPECT_EQ(error_of([&] { read_settings("mpt", fmt::format(R"(, "attn_config": {{{}}})", other)); }),
              "config.json: attn_config: Quire supports MPT with ALiBi and plain causal attention only");
  }
  EXPECT_EQ(error_of([&] { read_settings("mpt", R"(, "attn_config": {})"); }), "");
}

TEST(PhiMoe, RefusesTwoAmplitudesOfRope) {
  const std::string experts =
      R"(, "num_local_experts": 6, "num_experts_per_tok": 2, "rope_scaling": {"type": "longrope",
    "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [2, 2, 2, 2, 2, 2, 2, 2], "short_mscale": 1.5,
    "long_mscale": )";
  EXPECT_EQ(
      read_settings("phimoe", experts + "1.5}, \"original_max_position_embeddings\": 64").ropes[0].attention_factor,
      1.5);
  EXPECT_EQ(error_of([&] { read_settings("phimoe", experts + "2}, \"original_max_position_embeddings\": 64"); }),
            "config.json: rope_scaling.long_mscale: Quire supports one amplitude only, that of short_mscale");
}

TEST(Phi3Gguf, TakesTheAmplitudeOfLongRopeFromTheFile) {
  const std::vector<testing::TensorSpec> factors = {{"rope_factors_long.weight", {16}},
                                                    {"rope_factors_short.weight", {16}}};
  const RopeConfig rope = read_gguf("phi3", {{"rope.scaling.attn_factor", 1.25f}}, factors).ropes[0];
  EXPECT_EQ(rope.scaling, RopeConfig::Scaling::kLongRope);
  EXPECT_EQ(rope.attention_factor, 1.25);
  EXPECT_EQ(error_of([] {
              read_gguf("phi3", {{"rope.scaling.attn_factor", 1.25f}});
            }),
            "m.gguf: key phi3.rope.scaling.attn_factor is 1.25; only yarn and longrope have one");
}

TEST(DeepseekGguf, NormalisesTheWeightsOfExpertsIfTheFileSaysSo) {
  const std::map<std::string, testing::TinyGguf::Value> keys = {{"attention.kv_lora_rank", 8u},
                                                                {"attention.key_length_mla", 12u},
                                                                {"attention.value_length_mla", 8u},
                                                                {"rope.dimension_count", 4u},
                                                                {"expert_count", 4u},
                                                                {"expert_used_count", 2u}};
  EXPECT_FALSE(std::get<Moe>(read_gguf("deepseek2", keys).layers[0].ffn).routing.normalise);
  auto more = keys;
  more["expert_weights_norm"] = true;
  EXPECT_TRUE(std::get<Moe>(read_gguf("deepseek2", more).layers[0].ffn).routing.normalise);
}

TEST(Olmo2Gguf, TakesTheAmplitudeOfYarnFromTheFile) {
  const std::map<std::string, testing::TinyGguf::Value> factor = {{"rope.scaling.yarn_attn_factor", 1.25f}};
  auto yarn = factor;
  yarn["rope.scaling.type"] = "yarn";
  EXPECT_EQ(read_gguf("olmo2", yarn).ropes[0].attention_factor, 1.25);
  EXPECT_EQ(error_of([&] { read_gguf("olmo2", factor); }),
            "m.gguf: key olmo2.rope.scaling.yarn_attn_factor is 1.25; only yarn has one");
}

TEST(FalconH1, HasTwoLayersForEachOfTheFile) {
  const ModelConfig c =
      read_settings("falcon_h1", R"(, "mamba_n_heads": 8, "mamba_d_ssm": 64, "attention_in_multiplier": 2.0,
    "attention_out_multiplier": 0.25, "ssm_out_multiplier": 3.0, "mlp_multipliers": [0.5, 4.0])");
  ASSERT_EQ(c.layers.size(), 8u);
  EXPECT_TRUE(std::holds_alternative<Mamba2>(c.layers[2].mixer));
  EXPECT_TRUE(c.layers[2].joined);
  EXPECT_EQ(c.layers[2].mixer_scale, 3);
  EXPECT_TRUE(std::holds_alternative<Attention>(c.layers[3].mixer));
  EXPECT_EQ(c.layers[3].mixer_scale, 0.5f);
  EXPECT_EQ(c.layers[3].ffn_scale, 4);
  const auto name = [&](Tensor tensor, int layer) {
    return find_source(c, {tensor, layer}, FileKind::kHf, family("falcon_h1").hf).name;
  };
  EXPECT_EQ(name(Tensor::kMixIn, 2), "model.layers.1.mamba.in_proj.weight");
  EXPECT_EQ(name(Tensor::kQ, 3), "model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(error_of([] {
              read_settings("falcon_h1", R"(, "mamba_n_heads": 8, "mamba_d_ssm": 64, "mlp_multipliers": [1])");
            }),
            "config.json: mlp_multipliers: 1 numbers, expected 2");
}

}  // namespace
}  // namespace quire
