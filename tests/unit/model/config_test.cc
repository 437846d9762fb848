#include "model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "../format/gguf_bytes.h"
#include "base/error.h"
#include "model/families.h"
#include "ops/sin_cos.h"
#include "unit/model/read_settings.h"

namespace quire {
namespace {

constexpr std::string_view kHf = R"("num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
  "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 32768)";

ModelConfig from_hf(const std::string& more, std::string_view name = "llama") {
  const HfConfig files{JsonField::parse(fmt::format("{{{}{}}}", kHf, more), "config.json"), {}, {}};
  const HfSettings settings(files);
  ModelConfig config = family(name).from_hf(settings);
  settings.refuse_unread(name);
  return config;
}

std::vector<int> windows(const ModelConfig& c) {
  std::vector<int> all;
  for (const LayerSpec& layer : c.layers) all.push_back(std::get<Attention>(layer.mixer).window);
  return all;
}

std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& e) {
    return e.what();
  }
  return "read";
}

TEST(HfRopeConfig, DerivesAMissingYarnFactorFromTheContextLengths) {
  EXPECT_EQ(from_hf(R"(, "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 8192})").ropes[0].factor,
            4);
  EXPECT_EQ(refusal([] { from_hf(R"(, "rope_scaling": {"type": "linear"})"); }),
            "config.json: rope_scaling.factor is missing");
}

TEST(HfConfig, RefusesUnsupportedRopeSettings) {
  EXPECT_EQ(refusal([] { from_hf(R"(, "rope_scaling": {"type": "spiral", "factor": 4})"); }),
            "config.json: rope_scaling.type: rope scaling 'spiral' is not supported; supported: default, linear, "
            "dynamic, llama3, yarn, longrope, proportional");
  EXPECT_EQ(refusal([] { from_hf(R"(, "partial_rotary_factor": 1.5)"); }),
            "config.json: partial_rotary_factor: 1.5 is not a part of a head; it must be above 0 and at most 1");
}

TEST(HfConfig, RefusesSettingsOfOtherFamilies) {
  EXPECT_EQ(refusal([] { from_hf(R"(, "attn_logit_softcapping": 50.0)"); }),
            "config.json: attn_logit_softcapping: 50.0 is not supported; Quire's llama family does not have it");
  EXPECT_EQ(refusal([] { from_hf(R"(, "num_experts": 8)"); }),
            "config.json: num_experts: 8 is not supported; Quire's llama family does not have it");
  EXPECT_EQ(refusal([] { from_hf(R"(, "num_experts": 0, "attn_logit_softcapping": null, "clip_qkv": null)"); }),
            "read");
}

TEST(HfConfig, RotatesAPartOfEachHead) { EXPECT_EQ(from_hf(R"(, "partial_rotary_factor": 0.5)").ropes[0].dim, 8); }

TEST(HfConfig, DefaultsToMistralsWindow) {
  EXPECT_EQ(windows(from_hf("", "mistral")), (std::vector<int>{4096, 4096}));
  EXPECT_EQ(windows(from_hf(R"(, "sliding_window": null)", "mistral")), (std::vector<int>{0, 0}));
  EXPECT_EQ(windows(from_hf(R"(, "sliding_window": 9)", "mistral")), (std::vector<int>{9, 9}));
}

// A Llama with only an embedding matrix; `add` adds `more` keys.
std::string gguf_with(const std::function<void(GgufBytes&)>& add, uint64_t more = 1) {
  GgufBytes b(1, 7 + more);
  b.key("general.architecture", GgufType::STRING).string("llama");
  for (const char* key : {"block_count", "embedding_length", "attention.head_count", "feed_forward_length"})
    b.key(std::string("llama.") + key, GgufType::U32).number<uint32_t>(2);
  b.key("llama.context_length", GgufType::U32).number<uint32_t>(4096);
  b.key("llama.attention.layer_norm_rms_epsilon", GgufType::F32).number(1e-5f);
  add(b);
  b.string("token_embd.weight").number<uint32_t>(2).number<uint64_t>(2).number<uint64_t>(1);
  b.number<uint32_t>(0).number<uint64_t>(0);
  std::string bytes(b.text());
  bytes.resize((bytes.size() + 31) / 32 * 32 + 8);
  return bytes;
}

ModelConfig from_gguf(const std::string& bytes) {
  const Gguf gguf = Gguf::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  const GgufSettings settings(gguf);
  ModelConfig config = family("llama").from_gguf(settings);
  settings.refuse_unread();
  return config;
}

TEST(GgufConfig, RefusesUnsupportedSettings) {
  for (const char* key : {"llama.final_logit_softcapping", "llama.attn_logit_softcapping", "llama.logit_scale",
                          "llama.residual_scale", "llama.embedding_scale"}) {
    const std::string bytes = gguf_with([&](GgufBytes& b) { b.key(key, GgufType::F32).number(0.5f); });
    EXPECT_EQ(refusal([&] { from_gguf(bytes); }), fmt::format("m.gguf: key {}: 0.5 is not supported", key));
    EXPECT_EQ(refusal([&] { from_gguf(gguf_with([&](GgufBytes& b) { b.key(key, GgufType::F32).number(0.0f); })); }),
              "read");
  }
  const std::string both =
      gguf_with([](GgufBytes& b) { b.key("llama.attention.causal", GgufType::BOOL).raw(std::string(1, '\0')); });
  EXPECT_EQ(refusal([&] { from_gguf(both); }),
            "m.gguf: key llama.attention.causal: false is not supported by Quire's llama family");
}

TEST(GgufConfig, ReadsTheAttentionScale) {
  const std::string bytes =
      gguf_with([](GgufBytes& b) { b.key("llama.attention.scale", GgufType::F32).number(0.25f); });
  EXPECT_EQ(std::get<Attention>(from_gguf(bytes).layers[0].mixer).scale, 0.25f);
}

TEST(Validate, RefusesZeroFrequencyFactorsAndNegativeScales) {
  ModelConfig c = from_hf("");
  for_each_attention(c, [](Attention& a, int) { a.scale = 1; });
  validate(c, "m");
  RopeConfig& rope = c.ropes[0];
  rope.frequency_divisors.assign(static_cast<size_t>(rope.dim / 2), 1.0f);
  validate(c, "m");
  rope.frequency_divisors[1] = 0;
  EXPECT_EQ(refusal([&] { validate(c, "m"); }), "m: a rope frequency factor is 0; it must be positive");
  rope.frequency_divisors.clear();
  std::get<Attention>(c.layers[0].mixer).scale = -1;
  EXPECT_EQ(refusal([&] { validate(c, "m"); }), "m: the attention scale is -1; it must be positive");
}

TEST(RopeVariant, IsChosenByTheLengthOfThePrompt) {
  RopeConfig rope;
  EXPECT_EQ(rope_variant({&rope, 1}, 1 << 20), 0);
  rope.original_positions = 80;
  rope.scaling = RopeConfig::Scaling::kLongRope;
  EXPECT_EQ(rope_variant({&rope, 1}, 80), 0);
  EXPECT_EQ(rope_variant({&rope, 1}, 81), 1);
  rope.scaling = RopeConfig::Scaling::kDynamic;
  EXPECT_EQ(rope_variant({&rope, 1}, 80), 0);
  EXPECT_EQ(rope_variant({&rope, 1}, 97), 97);
}

TEST(ConfigIdentity, HoldsWhatDynamicRopeIsMadeOf) {
  const auto identity = [](double factor, double original) {
    ModelConfig c = from_hf("");
    c.ropes[0].scaling = RopeConfig::Scaling::kDynamic;
    c.ropes[0].factor = factor;
    c.ropes[0].original_positions = original;
    return config_identity(c);
  };
  EXPECT_EQ(identity(2, 100), identity(2, 100));
  EXPECT_NE(identity(2, 100), identity(3, 100));
  EXPECT_NE(identity(2, 100), identity(2, 101));
}

// transformers' _compute_dynamic_ntk_parameters multiplies theta by
//   (factor * length / original - (factor - 1)) ^ (dim / (dim - 2)).
TEST(RopeTable, StretchesWithThePromptsLengthIfDynamic) {
  RopeConfig rope;
  rope.dim = 4;
  rope.scaling = RopeConfig::Scaling::kDynamic;
  rope.factor = 2;
  rope.original_positions = 100;
  EXPECT_FLOAT_EQ(make_rope_table(rope, 0).frequencies[1], 0.01f);
  EXPECT_FLOAT_EQ(make_rope_table(rope, 200).frequencies[1], 0.01f / 3);
}

// Every 3rd position of two common models, to the end of their contexts.
TEST(SinCos, RoundsToTheSameFloatsAsTheCLibrary) {
  for (const auto& [theta, positions] : {std::pair{10000.0, 8192}, {500000.0, 131072}}) {
    RopeConfig rope;
    rope.dim = 64;
    rope.theta = theta;
    for (const float frequency : make_rope_table(rope).frequencies) {
      for (int position = 0; position < positions; position += 3) {
        const double angle = static_cast<float>(position) * frequency;
        const auto [sin, cos] = sin_cos(angle);
        ASSERT_EQ(static_cast<float>(sin), static_cast<float>(std::sin(angle))) << angle;
        ASSERT_EQ(static_cast<float>(cos), static_cast<float>(std::cos(angle))) << angle;
      }
    }
  }
}

TEST(SinCos, IsAccurateInEveryQuadrantAndFarOut) {
  for (const double angle : {0.0, -0.0, 0.785398185, 1.57079637, 2.35619450, 3.14159274, 4.71238899, -1.57079637, -4.0,
                             1e6, 134217720.0, 134217728.0, 1e12}) {
    const auto x = double{static_cast<float>(angle)};
    const auto [sin, cos] = sin_cos(x);
    EXPECT_NEAR(sin, std::sin(x), 4e-16) << x;
    EXPECT_NEAR(cos, std::cos(x), 4e-16) << x;
  }
  EXPECT_TRUE(std::isnan(sin_cos(std::numeric_limits<double>::infinity()).sin));
}

}  // namespace
}  // namespace quire
