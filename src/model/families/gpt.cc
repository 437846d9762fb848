// GPT-2, GPT-NeoX (Pythia) and GPT-J: layer norms with biases, plain MLPs.

#include "model/families.h"

namespace quire::gpt {

namespace {

constexpr TensorName kGpt2Hf[] = {
    {Tensor::kEmbedding, "transformer.wte.weight"},       {Tensor::kPositions, "transformer.wpe.weight"},
    {Tensor::kOutputNorm, "transformer.ln_f.weight"},     {Tensor::kMixerNorm, "transformer.h.{}.ln_1.weight"},
    {Tensor::kFfnNorm, "transformer.h.{}.ln_2.weight"},   {Tensor::kQ, "transformer.h.{}.attn.c_attn.weight"},
    {Tensor::kK, "transformer.h.{}.attn.c_attn.weight"},  {Tensor::kV, "transformer.h.{}.attn.c_attn.weight"},
    {Tensor::kO, "transformer.h.{}.attn.c_proj.weight"},  {Tensor::kUp, "transformer.h.{}.mlp.c_fc.weight"},
    {Tensor::kDown, "transformer.h.{}.mlp.c_proj.weight"}};
constexpr TensorName kNeoxHf[] = {{Tensor::kEmbedding, "gpt_neox.embed_in.weight"},
                                  {Tensor::kOutputNorm, "gpt_neox.final_layer_norm.weight"},
                                  {Tensor::kOutput, "embed_out.weight"},
                                  {Tensor::kMixerNorm, "gpt_neox.layers.{}.input_layernorm.weight"},
                                  {Tensor::kFfnNorm, "gpt_neox.layers.{}.post_attention_layernorm.weight"},
                                  {Tensor::kQ, "gpt_neox.layers.{}.attention.query_key_value.weight"},
                                  {Tensor::kK, "gpt_neox.layers.{}.attention.query_key_value.weight"},
                                  {Tensor::kV, "gpt_neox.layers.{}.attention.query_key_value.weight"},
                                  {Tensor::kO, "gpt_neox.layers.{}.attention.dense.weight"},
                                  {Tensor::kUp, "gpt_neox.layers.{}.mlp.dense_h_to_4h.weight"},
                                  {Tensor::kDown, "gpt_neox.layers.{}.mlp.dense_4h_to_h.weight"}};
constexpr TensorName kJHf[] = {
    {Tensor::kEmbedding, "transformer.wte.weight"},        {Tensor::kOutputNorm, "transformer.ln_f.weight"},
    {Tensor::kMixerNorm, "transformer.h.{}.ln_1.weight"},  {Tensor::kQ, "transformer.h.{}.attn.q_proj.weight"},
    {Tensor::kK, "transformer.h.{}.attn.k_proj.weight"},   {Tensor::kV, "transformer.h.{}.attn.v_proj.weight"},
    {Tensor::kO, "transformer.h.{}.attn.out_proj.weight"}, {Tensor::kUp, "transformer.h.{}.mlp.fc_in.weight"},
    {Tensor::kDown, "transformer.h.{}.mlp.fc_out.weight"}};

// GPT-2's files hold matrices as [inputs, outputs].
void place_gpt2(const ModelConfig& c, const Slot& slot, Source& source) {
  place_concatenated(c, slot, source);
  source.transposed = slot.layer >= 0;
}

ModelConfig gpt2_hf(const HfSettings& s) {
  s.ignore({"scale_attn_weights"});
  if (!s.get_or<bool>("scale_attn_weights", true))
    throw unsupported("{}: false is not supported", s.where("scale_attn_weights"));
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  use_layer_norm(c, true);
  use_learned_positions(c);
  set_nonlinearity(c, nonlinearity_of(s), false);
  return c;
}
ModelConfig gpt2_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  use_learned_positions(c);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, false);
  return c;
}

ModelConfig neox_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_nonlinearity(c, nonlinearity_of(s), false);
  const bool parallel = s.get_or<bool>("use_parallel_residual", true);
  for (LayerSpec& layer : c.layers) layer.parallel = parallel;
  return c;
}
ModelConfig neox_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_nonlinearity(c, Nonlinearity::kGelu, false);
  for (LayerSpec& layer : c.layers) layer.parallel = s.get_or<bool>("use_parallel_residual", true);
  return c;
}

ModelConfig gptj_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_rope_kind(c, RopeKind::kNeighbours);
  set_nonlinearity(c, nonlinearity_of(s), false);
  use_parallel_layers(c);
  return c;
}

constexpr std::string_view kGpt2Names[] = {"GPT2LMHeadModel"}, kNeoxNames[] = {"GPTNeoXForCausalLM"},
                           kJNames[] = {"GPTJForCausalLM"};

}  // namespace

extern const Family kGpt2 = {
    "gpt2", kGpt2Names, "gpt2", gpt2_hf, gpt2_gguf, {kGpt2Hf, place_gpt2}, {kFusedQkvGguf, place_concatenated}};
extern const Family kGptNeox = {"gpt_neox",
                                kNeoxNames,
                                "gptneox",
                                neox_hf,
                                neox_gguf,
                                {kNeoxHf, place_grouped},
                                {kFusedQkvGguf, place_concatenated}};
extern const Family kGptJ = {"gptj", kJNames, {}, gptj_hf, nullptr, {kJHf}};

}  // namespace quire::gpt
