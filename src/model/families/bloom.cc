// BLOOM and MPT: ALiBi in place of rope, layer norms, plain MLPs. BLOOM normalises embeddings and has biases everywhere;
// MPT has none.

#include "model/families.h"

namespace quire::bloom {
namespace {

constexpr TensorName kBloomHf[] = {{Tensor::kEmbedding, "transformer.word_embeddings.weight"},
                                   {Tensor::kEmbeddingNorm, "transformer.word_embeddings_layernorm.weight"},
                                   {Tensor::kOutputNorm, "transformer.ln_f.weight"},
                                   {Tensor::kMixerNorm, "transformer.h.{}.input_layernorm.weight"},
                                   {Tensor::kFfnNorm, "transformer.h.{}.post_attention_layernorm.weight"},
                                   {Tensor::kQ, "transformer.h.{}.self_attention.query_key_value.weight"},
                                   {Tensor::kK, "transformer.h.{}.self_attention.query_key_value.weight"},
                                   {Tensor::kV, "transformer.h.{}.self_attention.query_key_value.weight"},
                                   {Tensor::kO, "transformer.h.{}.self_attention.dense.weight"},
                                   {Tensor::kUp, "transformer.h.{}.mlp.dense_h_to_4h.weight"},
                                   {Tensor::kDown, "transformer.h.{}.mlp.dense_4h_to_h.weight"}};
constexpr TensorName kMptHf[] = {{Tensor::kEmbedding, "transformer.wte.weight"},
                                 {Tensor::kOutputNorm, "transformer.norm_f.weight"},
                                 {Tensor::kMixerNorm, "transformer.blocks.{}.norm_1.weight"},
                                 {Tensor::kFfnNorm, "transformer.blocks.{}.norm_2.weight"},
                                 {Tensor::kQ, "transformer.blocks.{}.attn.Wqkv.weight"},
                                 {Tensor::kK, "transformer.blocks.{}.attn.Wqkv.weight"},
                                 {Tensor::kV, "transformer.blocks.{}.attn.Wqkv.weight"},
                                 {Tensor::kO, "transformer.blocks.{}.attn.out_proj.weight"},
                                 {Tensor::kUp, "transformer.blocks.{}.ffn.up_proj.weight"},
                                 {Tensor::kDown, "transformer.blocks.{}.ffn.down_proj.weight"}};

void make_bloom(ModelConfig& c) {
  use_layer_norm(c, true);
  use_alibi(c);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, false);
  c.embedding_norm = c.output_norm;
}
ModelConfig bloom_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  make_bloom(c);
  return c;
}
ModelConfig bloom_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  make_bloom(c);
  return c;
}

void make_mpt(ModelConfig& c, float clip, float alibi_max) {
  use_layer_norm(c, false);
  use_alibi(c);
  set_nonlinearity(c, Nonlinearity::kGelu, false);
  for_each_attention(c, [&](Attention& a, int) {
    a.clip = clip;
    a.alibi_max = alibi_max;
  });
}
ModelConfig mpt_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  const auto attention = s.find("attn_config");
  if (!attention) throw invalid("{} is missing", s.where("attn_config"));
  if (!attention->get_or<bool>("alibi", true) || attention->get_or<bool>("qk_ln", false) ||
      attention->get_or<bool>("prefix_lm", false) ||
      attention->get_or<std::string>("attn_type", "multihead_attention") != "multihead_attention")
    throw unsupported("{}: Quire supports MPT with ALiBi and plain causal attention only", s.where("attn_config"));
  make_mpt(c, attention->get_or<float>("clip_qkv", 0), attention->get_or<float>("alibi_bias_max", 8));
  const auto scale = attention->get_or<float>("softmax_scale", 0);
  for_each_attention(c, [&](Attention& a, int) { a.scale = scale; });
  return c;
}
ModelConfig mpt_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  make_mpt(c, s.get_or<float>("attention.clamp_kqv", 0), s.get_or<float>("attention.max_alibi_bias", 8));
  return c;
}

constexpr std::string_view kBloomNames[] = {"BloomForCausalLM"}, kMptNames[] = {"MptForCausalLM", "MPTForCausalLM"};

}  // namespace

extern const Family kBloom = {"bloom",
                              kBloomNames,
                              "bloom",
                              bloom_hf,
                              bloom_gguf,
                              {kBloomHf, place_grouped},
                              {kFusedQkvGguf, place_concatenated}};
extern const Family kMpt = {
    "mpt", kMptNames, "mpt", mpt_hf, mpt_gguf, {kMptHf, place_concatenated}, {kFusedQkvGguf, place_concatenated}};

}  // namespace quire::bloom
