// Granite: Llama with multipliers of embeddings, residuals, scores and logits. StarCoder2 and StableLM: layer norms with
// biases. BitNet: norms inside attention and MLP.

#include <utility>

#include "model/families.h"

namespace quire {

void set_granite_multipliers(const HfSettings& s, ModelConfig& c) {
  c.embedding_scale = s.get_or<float>("embedding_multiplier", 1);
  c.logit_scale = 1 / s.get_or<float>("logits_scaling", 1);
  const auto residual = s.get_or<float>("residual_multiplier", 1);
  for (LayerSpec& layer : c.layers) layer.mixer_scale = layer.ffn_scale = residual;
  for_each_attention(c, [&](Attention& a, int) { a.scale = s.get_or<float>("attention_multiplier", 1); });
}
void set_granite_multipliers(const GgufSettings& s, ModelConfig& c) {
  set_rope_kind(c, RopeKind::kNeighbours);
  c.embedding_scale = s.get_or<float>("embedding_scale", 1);
  c.logit_scale = 1 / s.get_or<float>("logit_scale", 1);
  const auto residual = s.get_or<float>("residual_scale", 1);
  for (LayerSpec& layer : c.layers) layer.mixer_scale = layer.ffn_scale = residual;
}

}  // namespace quire

namespace quire::granite {
namespace {

// ---- Granite

ModelConfig granite_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_granite_multipliers(s, c);
  return c;
}
ModelConfig granite_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_granite_multipliers(s, c);
  return c;
}

// ---- StarCoder2

constexpr TensorName kStarcoderHf[] = {{Tensor::kUp, "model.layers.{}.mlp.c_fc.weight"},
                                       {Tensor::kDown, "model.layers.{}.mlp.c_proj.weight"}};

ModelConfig starcoder2_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  use_layer_norm(c, true);
  set_nonlinearity(c, nonlinearity_of(s), false);
  set_windows(s, c, sliding_window(s, 0), [](int) { return true; });
  return c;
}
ModelConfig starcoder2_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, false);
  set_windows(s, c, [](int) { return true; });
  return c;
}

// ---- StableLM

constexpr TensorName kStableLmHf[] = {{Tensor::kQNorm, "model.layers.{}.self_attn.q_layernorm.norms.{e}.weight"},
                                      {Tensor::kKNorm, "model.layers.{}.self_attn.k_layernorm.norms.{e}.weight"}};

ModelConfig stablelm(ModelConfig c, bool parallel, bool norms_of_heads) {
  use_layer_norm(c, true);
  if (parallel) use_parallel_layers(c);
  if (norms_of_heads) {
    for_each_attention(c, [&](Attention& a, int) {
      a.q_norm = a.k_norm = c.output_norm;
      a.q_norm.bias = a.k_norm.bias = false;
      a.norm_per_head = true;
    });
  }
  return c;
}
ModelConfig stablelm_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  const auto rope = s.find("rope_parameters");
  if (!s.has("partial_rotary_factor") && !s.has("rotary_pct") && !(rope && rope->has("partial_rotary_factor")))
    c.ropes[0].dim /= 4;
  return stablelm(std::move(c), s.get_or<bool>("use_parallel_residual", false), s.get_or<bool>("qk_layernorm", false));
}
// As llama.cpp, from the tensors: converters write use_parallel_residual for models that have none.
ModelConfig stablelm_gguf(const GgufSettings& s) {
  return stablelm(read_base(s), !s.file().find_tensor("blk.0.ffn_norm.weight"),
                  s.file().find_tensor("blk.0.attn_q_norm.weight") != nullptr);
}

// ---- BitNet b1.58, with weights that are not packed

ModelConfig bitnet_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  for_each_attention(c, [&](Attention& a, int) { a.inner = c.output_norm; });
  for_each_mlp(c, [&](Mlp& mlp) { mlp.inner = c.output_norm; });
  return c;
}

constexpr std::string_view kGraniteNames[] = {"GraniteForCausalLM"}, kStarcoder2Names[] = {"Starcoder2ForCausalLM"},
                           kStableLmNames[] = {"StableLmForCausalLM"}, kBitNetNames[] = {"BitNetForCausalLM"};

}  // namespace

extern const Family kGranite = {"granite", kGraniteNames, "granite", granite_hf, granite_gguf};
extern const Family kStarcoder2 = {"starcoder2",  kStarcoder2Names, "starcoder2",
                                   starcoder2_hf, starcoder2_gguf,  {kStarcoderHf}};
extern const Family kStableLm = {"stablelm", kStableLmNames, "stablelm", stablelm_hf, stablelm_gguf, {kStableLmHf}};
extern const Family kBitNet = {"bitnet", kBitNetNames, {}, bitnet_hf, nullptr};

}  // namespace quire::granite
