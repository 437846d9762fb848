// Hunyuan: Llama with norms of each head after rope; its mixtures of experts.

#include <algorithm>

#include "model/families.h"

namespace quire::hunyuan {
namespace {

constexpr TensorName kHf[] = {{Tensor::kQNorm, "model.layers.{}.self_attn.query_layernorm.weight"},
                              {Tensor::kKNorm, "model.layers.{}.self_attn.key_layernorm.weight"},
                              {Tensor::kRouter, "model.layers.{}.mlp.gate.wg.weight"},
                              {Tensor::kSharedGate, "model.layers.{}.mlp.shared_mlp.gate_proj.weight"},
                              {Tensor::kSharedUp, "model.layers.{}.mlp.shared_mlp.up_proj.weight"},
                              {Tensor::kSharedDown, "model.layers.{}.mlp.shared_mlp.down_proj.weight"}};

void normalise_after_rope(ModelConfig& c) {
  use_qk_norm(c);
  for_each_attention(c, [](Attention& a, int) { a.norm_after_rope = true; });
}

ModelConfig dense_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  normalise_after_rope(c);
  return c;
}

// One number, or a list that has the same number for each layer.
int same_for_all(const HfSettings& s, std::string_view key, int fallback) {
  const auto value = s.find(key);
  if (!value || !value->json().is_array()) return s.get_or<int>(key, fallback);
  const auto numbers = value->as<std::vector<int>>();
  if (numbers.empty() || std::ranges::any_of(numbers, [&](int n) { return n != numbers[0]; }))
    throw unsupported("{}: Quire supports the same number for all layers only", s.where(key));
  return numbers[0];
}

// Published files have settings of the published code for other models: latents without use_mla, one expert.
ModelConfig base_hf(const HfSettings& s) {
  s.ignore({"kv_lora_rank", "q_lora_rank"});
  if (s.get_or<bool>("use_mla", false)) throw unsupported("{}: true is not supported", s.where("use_mla"));
  ModelConfig c = read_base(s);
  if (s.get_or<bool>("use_qk_norm", true)) normalise_after_rope(c);
  return c;
}
ModelConfig dense_hf(const HfSettings& s) {
  if (const int experts = same_for_all(s, "num_experts", 1); experts > 1)
    throw unsupported("{}: {} is not supported; Quire's hunyuan family has no experts", s.where("num_experts"),
                      experts);
  return base_hf(s);
}
ModelConfig moe_hf(const HfSettings& s) {
  ModelConfig c = base_hf(s);
  const auto size = s.get<int>("intermediate_size");
  Moe moe;
  moe.routing.experts = same_for_all(s, "num_experts", 1);
  moe.routing.used = same_for_all(s, "moe_topk", 1);
  moe.size = same_for_all(s, "moe_intermediate_size", size);
  moe.shared_size = size;
  moe.nonlinearity = nonlinearity_of(s);
  set_experts(c, moe);
  return c;
}
ModelConfig moe_gguf(const GgufSettings& s) {
  ModelConfig c = dense_gguf(s);
  Moe moe = read_moe(s);
  moe.shared_size = s.get<int>("expert_shared_feed_forward_length");
  set_experts(c, moe);
  return c;
}

constexpr std::string_view kDenseNames[] = {"HunYuanDenseV1ForCausalLM"}, kMoeNames[] = {"HunYuanMoEV1ForCausalLM"};

}  // namespace

extern const Family kHunyuan = {"hunyuan", kDenseNames, "hunyuan-dense", dense_hf, dense_gguf, {kHf}};
extern const Family kHunyuanMoe = {"hunyuan_moe", kMoeNames, "hunyuan-moe", moe_hf, moe_gguf, {kHf}};

}  // namespace quire::hunyuan
