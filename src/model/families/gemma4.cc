// Gemma 4: Gemma 3's windows and norms, larger heads in layers that see all tokens, unit attention scale, normalised
// values, per-layer embeddings; the last layers share the caches of earlier ones.

#include <cmath>
#include <utility>

#include "model/families.h"

namespace quire {
namespace {

constexpr TensorName kHf[] = {{Tensor::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight"}};
constexpr std::string_view kIgnored[] = {"rope_freqs.weight"};

// Models without a projection to values in layers that see all tokens use the keys' (before their norm and rotation).
void place_hf(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kV || !c.values_are_keys) return;
  if (std::get<Attention>(c.layers[static_cast<size_t>(slot.layer)].mixer).window == 0)
    source.name = "model.layers." + std::to_string(slot.layer) + ".self_attn.k_proj.weight";
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
  if (s.get_or<bool>("enable_moe_block", false))
    throw unsupported("{}: Gemma 4's experts are not supported", s.where("enable_moe_block"));
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
  c.per_layer_dim = s.get_or<int>("embedding_length_per_layer_input", 0);
  c.logit_soft_cap = s.get_or<float>("final_logit_softcapping", 0);
  finish(c, s.get_or<int>("attention.shared_kv_layers", 0));
  return c;
}

constexpr std::string_view kNames[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};

}  // namespace

extern const Family kGemma4 = {"gemma4", kNames, "gemma4", from_hf, from_gguf, {kHf, place_hf}, {.ignored = kIgnored}};

}  // namespace quire
