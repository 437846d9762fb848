// Falcon: attention and MLP in parallel; queries, keys and values in one matrix, group by group. The 1-billion models
// use ALiBi.

#include <cmath>

#include "model/families.h"

namespace quire::falcon {
namespace {

constexpr TensorName kHf[] = {{Tensor::kEmbedding, "transformer.word_embeddings.weight"},
                              {Tensor::kOutputNorm, "transformer.ln_f.weight"},
                              {Tensor::kMixerNorm, "transformer.h.{}.input_layernorm.weight"},
                              {Tensor::kFfnNorm, "transformer.h.{}.post_attention_layernorm.weight"},
                              {Tensor::kQ, "transformer.h.{}.self_attention.query_key_value.weight"},
                              {Tensor::kK, "transformer.h.{}.self_attention.query_key_value.weight"},
                              {Tensor::kV, "transformer.h.{}.self_attention.query_key_value.weight"},
                              {Tensor::kO, "transformer.h.{}.self_attention.dense.weight"},
                              {Tensor::kUp, "transformer.h.{}.mlp.dense_h_to_4h.weight"},
                              {Tensor::kDown, "transformer.h.{}.mlp.dense_4h_to_h.weight"}};

// Models with a norm for each branch name them otherwise.
void place_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_grouped(c, slot, source);
  if (slot.layer < 0) return;
  const LayerSpec& layer = c.layers[static_cast<size_t>(slot.layer)];
  if (!layer.parallel || layer.shared_norm) return;
  const std::string prefix = "transformer.h." + std::to_string(slot.layer);
  if (slot.tensor == Tensor::kMixerNorm) source.name = prefix + ".ln_attn.weight";
  if (slot.tensor == Tensor::kFfnNorm) source.name = prefix + ".ln_mlp.weight";
}

// llama.cpp keeps the norm of the MLP under the name that models with one norm have.
void place_gguf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_concatenated(c, slot, source);
  if (slot.layer < 0 || c.layers[static_cast<size_t>(slot.layer)].shared_norm) return;
  const std::string prefix = "blk." + std::to_string(slot.layer);
  if (slot.tensor == Tensor::kMixerNorm) source.name = prefix + ".attn_norm_2.weight";
  if (slot.tensor == Tensor::kFfnNorm) source.name = prefix + ".attn_norm.weight";
}

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  use_layer_norm(c, true);
  set_nonlinearity(c, nonlinearity_of(s), false);
  const bool is_new = s.get_or<bool>("new_decoder_architecture", false), alibi = s.get_or<bool>("alibi", false),
             parallel = s.get_or<bool>("parallel_attn", true) || is_new,
             two_norms = s.get_or<int>("num_ln_in_parallel_attn", 2) == 2 && is_new;
  for (LayerSpec& layer : c.layers) {
    layer.parallel = parallel;
    layer.shared_norm = parallel && !two_norms;
  }
  for_each_attention(c, [&](Attention& a, int) {
    if (!is_new) a.kv_heads = s.get_or<bool>("multi_query", true) ? 1 : a.heads;
    a.alibi_scale = 1 / std::sqrt(static_cast<float>(a.key_dim));  // slopes are scaled like scores
  });
  if (alibi) use_alibi(c);
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_layer_norm(c, true);
  set_nonlinearity(c, Nonlinearity::kGelu, false);
  const bool two_norms = s.file().find_tensor("blk.0.attn_norm_2.weight") != nullptr;
  for (LayerSpec& layer : c.layers) {
    layer.parallel = true;
    layer.shared_norm = !two_norms;
  }
  return c;
}

constexpr std::string_view kNames[] = {"FalconForCausalLM", "RWForCausalLM"};

}  // namespace

extern const Family kFalcon = {
    "falcon", kNames, "falcon", from_hf, from_gguf, {kHf, place_hf}, {kFusedQkvGguf, place_gguf}};

}  // namespace quire::falcon
