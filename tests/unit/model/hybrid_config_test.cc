// Models that mix recurrent layers with attention: what their files say becomes layers, states and rows of tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "error_of.h"
#include "kernels/kernels.h"
#include "unit/model/read_settings.h"

namespace quire {
namespace {

// "a" for attention, "r" for a recurrent layer.
std::string mixer_pattern(const ModelConfig& c) {
  std::string text;
  for (const LayerSpec& layer : c.layers) text += std::holds_alternative<Attention>(layer.mixer) ? 'a' : 'r';
  return text;
}

const std::string kDelta = R"(, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
                               "linear_value_head_dim": 12)";
const std::string kExperts = R"(, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                                 "shared_expert_intermediate_size": 12)";
const std::string kMamba = R"(, "mamba_n_heads": 8, "mamba_d_state": 16, "num_experts_per_tok": 2)";

TEST(QwenHybrids, AttendInEveryFourthLayerUnlessTheFileSaysWhich) {
  EXPECT_EQ(mixer_pattern(read_settings("qwen3_5", kDelta)), "rrra");
  EXPECT_EQ(mixer_pattern(read_settings("qwen3_5", kDelta + R"(, "full_attention_interval": 2)")), "rara");
  const std::string types =
      R"(, "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"])";
  EXPECT_EQ(mixer_pattern(read_settings("qwen3_5", kDelta + types)), "arra");
  EXPECT_EQ(error_of([] {
              read_settings("qwen3_5", kDelta + R"(, "layer_types": ["full_attention", "conv", "conv", "conv"])");
            }),
            "config.json: layer_types: 'conv' is not supported; supported: linear_attention, full_attention");
}

TEST(QwenHybrids, AddOneToAllNormsButTheDeltaNets) {
  const ModelConfig c = read_settings("qwen3_5", kDelta);
  const auto& attention = std::get<Attention>(c.layers[3].mixer);
  EXPECT_TRUE(attention.gate && attention.q_norm.plus_one && c.output_norm.plus_one && c.layers[0].ffn_in.plus_one);
  EXPECT_FALSE(std::get<GatedDelta>(c.layers[0].mixer).norm.plus_one);
}

TEST(QwenHybrids, HaveExpertsExceptInListedLayers) {
  const ModelConfig c = read_settings("qwen3_next", kDelta + kExperts + R"(, "mlp_only_layers": [1])");
  ASSERT_TRUE(std::holds_alternative<Moe>(c.layers[0].ffn));
  EXPECT_TRUE(std::holds_alternative<Mlp>(c.layers[1].ffn));
  EXPECT_EQ(std::get<Moe>(c.layers[0].ffn).shared_size, 12);
}

// The file's rows of each of these tensors, which share one tensor of the file.
std::vector<int> rows_of(const ModelConfig& c, const Family& f, const std::vector<std::pair<Tensor, int>>& tensors,
                         int layer) {
  std::vector<int> rows;
  std::string name;
  for (const auto& [tensor, size] : tensors) {
    const Source source = find_source(c, {tensor, layer}, FileKind::kHf, f.hf);
    if (name.empty()) name = source.name;
    EXPECT_EQ(source.name, name);
    for (int i = 0; i < size; ++i) rows.push_back(source.row(i));
  }
  return rows;
}
std::vector<int> up_to(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) numbers[static_cast<size_t>(i)] = i;
  return numbers;
}

TEST(QwenHybrids, PlaceEachRowOfFusedTensorsOnce) {
  const ModelConfig next = read_settings("qwen3_next", kDelta + kExperts), c = read_settings("qwen3_5", kDelta);
  const Family &next_family = family("qwen3_next"), &f = family("qwen3_5");
  const std::vector<std::pair<Tensor, int>> qkv = {{Tensor::kDeltaQ, 16}, {Tensor::kDeltaK, 16}, {Tensor::kDeltaV, 48}};
  auto qkvz = qkv;
  qkvz.emplace_back(Tensor::kDeltaGate, 48);
  std::vector<int> rows = rows_of(next, next_family, qkvz, 0);
  // The second key head's group: its query, its key, the values and gates of two heads.
  EXPECT_EQ(rows[8], 64);
  EXPECT_EQ(rows[16 + 8], 72);
  EXPECT_EQ(rows[32 + 24], 80);
  EXPECT_EQ(rows[80 + 24], 104);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, up_to(128));
  EXPECT_EQ(rows_of(next, next_family, {{Tensor::kDeltaBeta, 4}, {Tensor::kDeltaDecay, 4}}, 0),
            (std::vector{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(rows_of(c, f, qkv, 0), up_to(80));
  rows = rows_of(c, f, {{Tensor::kQ, 64}, {Tensor::kAttentionGate, 64}}, 3);
  EXPECT_EQ(rows[16], 32);
  EXPECT_EQ(rows[64], 16);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, up_to(128));
}

TEST(Lfm2, ReadsTheWidthOfItsMlpsAndItsAttentionLayers) {
  const ModelConfig c = read_settings("lfm2", R"(, "block_multiple_of": 16, "full_attn_idxs": [1, 2])");
  EXPECT_EQ(mixer_pattern(c), "raar");
  EXPECT_EQ(std::get<Mlp>(c.layers[0].ffn).size, 64);  // two thirds of 80, rounded up
  EXPECT_EQ(c.ropes[0].theta, 1e6);
  EXPECT_TRUE(c.tied_output);
  const ModelConfig whole = read_settings("lfm2", R"(, "block_auto_adjust_ff_dim": false, "block_ff_dim": 96)");
  EXPECT_EQ(mixer_pattern(whole), "aaaa");
  EXPECT_EQ(std::get<Mlp>(whole.layers[0].ffn).size, 96);
}

TEST(Lfm2, HasExpertsAfterItsDenseLayers) {
  const ModelConfig c = read_settings("lfm2_moe", R"(, "layer_types": ["conv", "full_attention", "conv", "conv"],
    "num_dense_layers": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8)");
  EXPECT_EQ(mixer_pattern(c), "rarr");
  ASSERT_TRUE(std::holds_alternative<Mlp>(c.layers[1].ffn));
  EXPECT_EQ(std::get<Mlp>(c.layers[1].ffn).size, 80);
  const auto& moe = std::get<Moe>(c.layers[2].ffn);
  EXPECT_TRUE(moe.correction);
  EXPECT_EQ(moe.routing.scores, Routing::Scores::kSigmoid);
}

TEST(GraniteHybrid, ReadsLayersExpertsAndMultipliers) {
  const std::string types = R"(, "layer_types": ["mamba", "attention", "mamba", "mamba"])";
  const ModelConfig c = read_settings("granitemoehybrid", kMamba + types + R"(, "num_local_experts": 6,
    "shared_intermediate_size": 24, "residual_multiplier": 0.5, "attention_multiplier": 0.25)");
  EXPECT_EQ(mixer_pattern(c), "rarr");
  const auto& mamba = std::get<Mamba2>(c.layers[0].mixer);
  EXPECT_EQ(mamba.head_dim, 16);
  EXPECT_EQ(mamba.channels(), 128 + 2 * 16);
  EXPECT_EQ(std::get<Attention>(c.layers[1].mixer).rope, -1);
  EXPECT_EQ(std::get<Attention>(c.layers[1].mixer).scale, 0.25f);
  EXPECT_EQ(c.layers[2].mixer_scale, 0.5f);
  EXPECT_EQ(c.layers[2].ffn_scale, 0.5f);
  EXPECT_EQ(std::get<Moe>(c.layers[1].ffn).shared_size, 24);
}

TEST(GraniteHybrid, HasOnlyTheSharedMlpWithoutExperts) {
  const ModelConfig c =
      read_settings("granitemoehybrid", kMamba + R"(, "num_local_experts": 0, "shared_intermediate_size": 24)");
  ASSERT_TRUE(std::holds_alternative<Mlp>(c.layers[0].ffn));
  EXPECT_EQ(std::get<Mlp>(c.layers[0].ffn).size, 24);
}

TEST(GraniteHybrid, RefusesBoundedStepSizes) {
  const std::string mamba = kMamba + R"(, "num_local_experts": 0, "time_step_limit": )";
  EXPECT_EQ(error_of([&] { read_settings("granitemoehybrid", mamba + R"([0.0, {"__float__": "Infinity"}])"); }), "");
  EXPECT_EQ(error_of([&] { read_settings("granitemoehybrid", mamba + "[0.0, 0.1]"); }),
            "config.json: time_step_limit: [0.0,0.1] is not supported; Quire does not bound step sizes");
}

TEST(Mamba2, HasNeitherAttentionNorMlps) {
  ModelConfig c = read_settings("mamba2", R"(, "num_heads": 8, "state_size": 16, "n_groups": 2)");
  EXPECT_EQ(mixer_pattern(c), "rrrr");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(c.layers[0].ffn));
  EXPECT_FALSE(first_attention(c));
  validate(c, "m");
  const CacheLayout layout = cache_layout(c, KvType::kBf16);
  EXPECT_TRUE(layout.groups().empty());
  EXPECT_EQ(layout.state_bytes(), 4 * std::get<Mamba2>(c.layers[0].mixer).state().bytes());
}

TEST(NemotronH, CountsItsMlpsAsLayersOfTheFile) {
  const ModelConfig c = read_settings("nemotron_h", R"(, "hybrid_override_pattern": "M-M*-")");
  EXPECT_EQ(mixer_pattern(c), "rra");
  EXPECT_TRUE(std::holds_alternative<Mlp>(c.layers[0].ffn));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(c.layers[1].ffn));
  const auto name = [&](Tensor tensor, int layer) {
    return find_source(c, {tensor, layer}, FileKind::kHf, family("nemotron_h").hf).name;
  };
  EXPECT_EQ(name(Tensor::kMixerNorm, 0), "backbone.layers.0.norm.weight");
  EXPECT_EQ(name(Tensor::kFfnNorm, 0), "backbone.layers.1.norm.weight");
  EXPECT_EQ(name(Tensor::kMixIn, 1), "backbone.layers.2.mixer.in_proj.weight");
  EXPECT_EQ(name(Tensor::kQ, 2), "backbone.layers.3.mixer.q_proj.weight");
  EXPECT_EQ(name(Tensor::kDown, 2), "backbone.layers.4.mixer.down_proj.weight");
  EXPECT_EQ(
      error_of([] { read_settings("nemotron_h", R"(, "hybrid_override_pattern": "M--")"); }),
      "config.json: hybrid_override_pattern: layer '-' is not supported here; supported: M, *, and - or E after each");
}

TEST(CacheLayout, KeepsPagesForAttentionAndAStateForTheOtherLayers) {
  const ModelConfig c = read_settings("qwen3_5", kDelta);
  const CacheLayout layout = cache_layout(c, KvType::kBf16);
  ASSERT_EQ(layout.groups().size(), 1u);
  EXPECT_EQ(layout.groups()[0].layers, std::vector{3});
  EXPECT_EQ(layout.layers()[0].state_bytes % 64, 0u);
  EXPECT_GE(layout.layers()[0].state_bytes, sizeof(float) * (3 * 80 + 4 * 8 * 12));
}

TEST(Validate, RefusesRecurrentLayersOutOfRange) {
  const auto refused = [](const ModelConfig& c) { return error_of([&] { validate(c, "m"); }); };
  ModelConfig c = read_settings("qwen3_5", kDelta);
  for_each_attention(c, [](Attention& a, int) { a.scale = 1; });
  EXPECT_EQ(refused(c), "");
  auto& delta = std::get<GatedDelta>(c.layers[0].mixer);
  delta.value_heads = 5;
  EXPECT_EQ(refused(c), "m: 5 value heads are not a multiple of 2 key heads");
  delta.value_heads = 4;
  delta.width = 9;
  EXPECT_EQ(refused(c), "m: the width of the convolution is 9; it must be 2 to 8");
  delta.width = 4;
  delta.key_dim = 512;
  EXPECT_EQ(refused(c), "m: the size of a key head is 512; it must be 1 to 256");
}

}  // namespace
}  // namespace quire
