// LFM2: short convolutions in most layers, attention in the others; dense, or with experts after the first layers.

#include <algorithm>
#include <cmath>

#include "model/families.h"

namespace quire::lfm2 {
namespace {

constexpr TensorName kHf[] = {{Tensor::kMixerNorm, "model.layers.{}.operator_norm.weight"},
                              {Tensor::kFfnNorm, "model.layers.{}.ffn_norm.weight"},
                              {Tensor::kOutputNorm, "model.embedding_norm.weight"},
                              {Tensor::kMixIn, "model.layers.{}.conv.in_proj.weight"},
                              {Tensor::kConv, "model.layers.{}.conv.conv.weight"},
                              {Tensor::kMixOut, "model.layers.{}.conv.out_proj.weight"},
                              {Tensor::kO, "model.layers.{}.self_attn.out_proj.weight"},
                              {Tensor::kQNorm, "model.layers.{}.self_attn.q_layernorm.weight"},
                              {Tensor::kKNorm, "model.layers.{}.self_attn.k_layernorm.weight"},
                              {Tensor::kGate, "model.layers.{}.feed_forward.w1.weight"},
                              {Tensor::kUp, "model.layers.{}.feed_forward.w3.weight"},
                              {Tensor::kDown, "model.layers.{}.feed_forward.w2.weight"},
                              {Tensor::kRouter, "model.layers.{}.feed_forward.gate.weight"},
                              {Tensor::kRouterCorrection, "model.layers.{}.feed_forward.expert_bias"},
                              {Tensor::kExpertGate, "model.layers.{}.feed_forward.experts.{e}.w1.weight"},
                              {Tensor::kExpertUp, "model.layers.{}.feed_forward.experts.{e}.w3.weight"},
                              {Tensor::kExpertDown, "model.layers.{}.feed_forward.experts.{e}.w2.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kOutputNorm, "token_embd_norm.weight"},
                                {Tensor::kMixIn, "blk.{}.shortconv.in_proj.weight"},
                                {Tensor::kConv, "blk.{}.shortconv.conv.weight"},
                                {Tensor::kMixOut, "blk.{}.shortconv.out_proj.weight"}};

// The width of the MLPs: two thirds of the setting, rounded up, unless the file says that it is final.
int ffn_size(const HfSettings& s) {
  const auto size = s.get<int>({"block_ff_dim", "intermediate_size"});
  const bool adjusted = s.get_or<bool>("block_auto_adjust_ff_dim", true);
  const auto multiplier = s.get_or<double>("block_ffn_dim_multiplier", 1.0);
  const int64_t multiple = std::max(1, s.get_or<int>("block_multiple_of", 256));
  if (!adjusted || size < 1) return size;
  const int64_t two_thirds = int64_t{2} * size / 3;
  const double wanted = multiplier * static_cast<double>(two_thirds);
  if (!(wanted >= 0 && wanted < 1 << 30))
    throw invalid("{}: {} is out of range", s.where("block_ffn_dim_multiplier"), multiplier);
  return static_cast<int>((static_cast<int64_t>(wanted) + multiple - 1) / multiple * multiple);
}

// Everything but the MLPs.
ModelConfig read_mixers(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>({"tie_embedding", "tie_word_embeddings"}, true);
  if (!s.has("rope_theta") && !s.has("rope_parameters")) c.ropes[0].theta = s.get_or<double>("theta", 1e6);
  use_qk_norm(c);
  const auto types = layer_types(s, c, {"conv", "full_attention"});
  const auto full = s.find("full_attn_idxs");
  const auto listed = full && !full->json().is_null() ? full->as<std::vector<int>>() : std::vector<int>{};
  const ShortConv conv{
      .channels = c.hidden, .width = s.get_or<int>("conv_L_cache", 3), .bias = s.get_or<bool>("conv_bias", false)};
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool attends = types ? (*types)[i] == "full_attention"
                               : listed.empty() || std::ranges::find(listed, static_cast<int>(i)) != listed.end();
    if (!attends) c.layers[i].mixer = conv;
  }
  return c;
}

ModelConfig dense_hf(const HfSettings& s) {
  ModelConfig c = read_mixers(s);
  const int size = ffn_size(s);
  for_each_mlp(c, [&](Mlp& mlp) { mlp.size = size; });
  return c;
}

ModelConfig moe_hf(const HfSettings& s) {
  ModelConfig c = read_mixers(s);
  Moe moe = read_moe(s);
  moe.routing.scores = Routing::Scores::kSigmoid;
  moe.routing.scale = s.get_or<float>("routed_scaling_factor", 1);
  moe.correction = s.get_or<bool>("use_expert_bias", true);
  set_experts(c, moe, s.get_or<int>("num_dense_layers", 0));
  return c;
}

ModelConfig dense_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_qk_norm(c);
  ShortConv conv{.channels = c.hidden, .width = s.get<int>("shortconv.l_cache")};
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (std::get<Attention>(c.layers[i].mixer).kv_heads > 0) continue;
    conv.bias = s.file().find_tensor(fmt::format("blk.{}.shortconv.conv.bias", i)) != nullptr;
    c.layers[i].mixer = conv;
  }
  return c;
}
ModelConfig moe_gguf(const GgufSettings& s) {
  ModelConfig c = dense_gguf(s);
  Moe moe = read_moe(s);
  moe.correction = true;
  set_experts(c, moe, s.get_or<int>("leading_dense_block_count", 0));
  return c;
}

constexpr std::string_view kNames[] = {"Lfm2ForCausalLM"}, kMoeNames[] = {"Lfm2MoeForCausalLM"};

}  // namespace

extern const Family kLfm2 = {"lfm2", kNames, "lfm2", dense_hf, dense_gguf, {kHf}, {kGguf}};
extern const Family kLfm2Moe = {"lfm2_moe", kMoeNames, "lfm2moe", moe_hf, moe_gguf, {kHf}, {kGguf}};

}  // namespace quire::lfm2
