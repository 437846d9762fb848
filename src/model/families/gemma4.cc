// Gemma 4: Gemma 3's windows and norms, larger heads in layers that see all tokens, unit attention scale, normalised
// values, per-layer embeddings; the last layers share the caches of earlier ones. Models with experts have them next to
// an MLP that every token uses.

#include <cmath>
#include <utility>

#include "model/families.h"

namespace quire::gemma4 {
namespace {

constexpr TensorName kHf[] = {{Tensor::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight"},
                              {Tensor::kRouter, "model.layers.{}.router.proj.weight"},
                              {Tensor::kExpertGate, "model.layers.{}.experts.gate_up_proj"},
                              {Tensor::kExpertUp, "model.layers.{}.experts.gate_up_proj"},
                              {Tensor::kExpertDown, "model.layers.{}.experts.down_proj"},
                              {Tensor::kSharedGate, "model.layers.{}.mlp.gate_proj.weight"},
                              {Tensor::kSharedUp, "model.layers.{}.mlp.up_proj.weight"},
                              {Tensor::kSharedDown, "model.layers.{}.mlp.down_proj.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kExpertGate, "blk.{}.ffn_gate_up_exps.weight"},
                                {Tensor::kExpertUp, "blk.{}.ffn_gate_up_exps.weight"},
                                {Tensor::kSharedGate, "blk.{}.ffn_gate.weight"},
                                {Tensor::kSharedUp, "blk.{}.ffn_up.weight"},
                                {Tensor::kSharedDown, "blk.{}.ffn_down.weight"}};
constexpr TensorName kKeysAsValuesGguf[] = {{Tensor::kV, "blk.{}.attn_k.weight"}};
constexpr std::string_view kIgnored[] = {"rope_freqs.weight"};

// The experts' matrices are [gate; up]; the norm before them is not that of a plain MLP.
void place_experts(const ModelConfig& c, const Slot& slot, Source& source, const std::string& norm) {
  const auto* moe = slot.layer < 0 ? nullptr : std::get_if<Moe>(&c.layers[static_cast<size_t>(slot.layer)].ffn);
  if (!moe) return;
  if (slot.tensor == Tensor::kFfnNorm) source.name = norm;
  if (slot.tensor != Tensor::kExpertGate && slot.tensor != Tensor::kExpertUp) return;
  source.rows = 2 * moe->size;
  source.first = slot.tensor == Tensor::kExpertUp ? moe->size : 0;
}
void place_gguf(const ModelConfig& c, const Slot& slot, Source& source) {
  place_experts(c, slot, source, "blk." + std::to_string(slot.layer) + ".pre_ffw_norm_2.weight");
}
// Models without a projection to values in layers that see all tokens use the keys' (before their norm and rotation).
void place_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  const std::string prefix = "model.layers." + std::to_string(slot.layer);
  place_experts(c, slot, source, prefix + ".pre_feedforward_layernorm_2.weight");
  if (slot.tensor != Tensor::kV || !c.values_are_keys) return;
  if (std::get<Attention>(c.layers[static_cast<size_t>(slot.layer)].mixer).window == 0)
    source.name = prefix + ".self_attn.k_proj.weight";
}

// Each layer's MLP becomes the one that all tokens share.
void add_experts(ModelConfig& c, Moe moe) {
  moe.router_in = moe.shared_in = moe.shared_out = moe.experts_out = c.output_norm;
  moe.router_scale = 1 / std::sqrt(static_cast<float>(c.hidden));
  moe.expert_scales = true;
  for (LayerSpec& layer : c.layers) {
    const Mlp mlp = std::get<Mlp>(layer.ffn);
    moe.shared_size = mlp.size;
    moe.nonlinearity = mlp.nonlinearity;
    layer.ffn = moe;
  }
}

void finish(ModelConfig& c, int shared) {
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden));
  for (LayerSpec& layer : c.layers) {
    layer.mixer_out = layer.ffn_out = layer.mixer_in;
    layer.output_scale = true;
  }
  use_qk_norm(c);
  for_each_attention(c, [&](Attention& a, int) {
    a.v_norm = c.output_norm;
    a.v_norm.weight = false;
    a.scale = 1;
  });
  share_caches(c, shared);
}

bool slides(int layer) { return (layer + 1) % 6 != 0; }

ModelConfig from_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", true);
  set_windows(s, c, sliding_window(s, 512), slides);
  // Heads of layers that see all tokens: one number, or per layer (transformers 5).
  const int own = first_attention(c)->key_dim, global = s.get_or<int>("global_head_dim", own),
            global_kv_heads = s.get_or<int>("num_global_key_value_heads", 0);
  const auto per_layer = s.find("per_layer_config");
  const auto parameters = s.find("rope_parameters");
  for_each_attention(c, [&](Attention& a, int layer) {
    if (a.window == 0) a.key_dim = a.value_dim = global;
    if (a.window == 0 && global_kv_heads > 0) a.kv_heads = global_kv_heads;
    if (const auto mine = per_layer ? per_layer->find(std::to_string(layer)) : std::nullopt) {
      a.key_dim = a.value_dim = mine->get_or<int>("head_dim", a.key_dim);
      a.kv_heads = mine->get_or<int>("num_key_value_heads", a.kv_heads);
    }
    if (a.window == 0 && parameters) c.ropes[0] = read_rope(s, parameters->find("full_attention"), a.key_dim);
  });
  c.values_are_keys = s.get_or<bool>("attention_k_eq_v", false);
  const int shared = s.get_or<int>("num_kv_shared_layers", 0);
  if (shared < 0 || std::cmp_greater_equal(shared, c.layers.size()))
    throw invalid("{}: {} of {} layers cannot share caches", s.where("num_kv_shared_layers"), shared, c.layers.size());
  if (s.get_or<bool>("use_double_wide_mlp", false)) {
    for (size_t i = c.layers.size(); i-- > 0 && c.layers.size() - i <= static_cast<size_t>(shared);)
      std::get<Mlp>(c.layers[i].ffn).size *= 2;
  }
  if (s.get_or<bool>("enable_moe_block", false)) add_experts(c, read_moe(s));
  c.per_layer_dim = s.get_or<int>("hidden_size_per_layer_input", 0);
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  finish(c, shared);
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_nonlinearity(c, Nonlinearity::kGeluTanh, true);
  add_local_rope(c, s.get_or<double>("rope.freq_base_swa", 10000.0));
  c.ropes[1].dim = s.get_or<int>("rope.dimension_count_swa", c.ropes[0].dim);
  set_windows(s, c, slides);
  for_each_attention(c, [&](Attention& a, int) {
    if (a.window == 0) return;
    a.key_dim = s.get_or<int>("attention.key_length_swa", a.key_dim);
    a.value_dim = s.get_or<int>("attention.value_length_swa", a.value_dim);
  });
  if (s.get_or<int>("expert_count", 0) > 0) add_experts(c, read_moe(s));
  c.per_layer_dim = s.get_or<int>("embedding_length_per_layer_input", 0);
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  finish(c, s.get_or<int>("attention.shared_kv_layers", 0));
  return c;
}

constexpr std::string_view kNames[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};

}  // namespace

extern const Family kGemma4 = {
    "gemma4", kNames, "gemma4", from_hf, from_gguf, {kHf, place_hf}, {kGguf, place_gguf, kIgnored, kKeysAsValuesGguf}};

}  // namespace quire::gemma4
