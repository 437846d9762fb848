// OLMo 1 to 3, EXAONE 4 and OLMoE. OLMo 2 and later, and EXAONE 4, normalise after attention and MLP instead of before.

#include "model/families.h"

namespace quire::olmo {
namespace {

constexpr TensorName kPostNormsHf[] = {{Tensor::kMixerOutNorm, "model.layers.{}.post_attention_layernorm.weight"},
                                       {Tensor::kFfnOutNorm, "model.layers.{}.post_feedforward_layernorm.weight"}};

void use_whole_qk_norm(ModelConfig& c) {
  use_qk_norm(c);
  for_each_attention(c, [](Attention& a, int) { a.whole_norm = true; });
}

// Layer norms without weights; queries, keys and values are clipped.
void make_olmo(ModelConfig& c, float clip) {
  use_layer_norm(c, false);
  c.output_norm.weight = false;
  for (LayerSpec& layer : c.layers) layer.mixer_in.weight = layer.ffn_in.weight = false;
  for_each_attention(c, [clip](Attention& a, int) { a.clip = clip; });
}
ModelConfig olmo_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  for (LayerSpec& layer : c.layers) layer.mixer_in.epsilon = layer.ffn_in.epsilon = c.output_norm.epsilon = 1e-5f;
  make_olmo(c, s.get_or<float>("clip_qkv", 0));
  return c;
}
ModelConfig olmo_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  make_olmo(c, s.get_or<float>("attention.clamp_kqv", 0));
  return c;
}

// Three layers of four see a window, and use no scaled rope.
bool olmo3_slides(int layer) { return (layer + 1) % 4 != 0; }
void add_unscaled_rope(ModelConfig& c) {
  if (c.ropes.size() == 1) add_local_rope(c, c.ropes[0].theta);
}

ModelConfig olmo2_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  use_whole_qk_norm(c);
  use_post_norms_only(c);
  return c;
}
ModelConfig olmo3_hf(const HfSettings& s) {
  ModelConfig c = olmo2_hf(s);
  add_unscaled_rope(c);
  set_windows(s, c, sliding_window(s, 4096), olmo3_slides);
  return c;
}
ModelConfig olmo2_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_whole_qk_norm(c);
  use_post_norms_only(c);
  if (!s.has("attention.sliding_window")) return c;
  add_unscaled_rope(c);
  set_windows(s, c, olmo3_slides);
  return c;
}

ModelConfig olmoe_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  use_whole_qk_norm(c);
  for_each_attention(c, [&](Attention& a, int) { a.clip = s.get_or<float>("clip_qkv", 0); });
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("norm_topk_prob", false);
  set_experts(c, moe);
  return c;
}
ModelConfig olmoe_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  use_whole_qk_norm(c);
  for_each_attention(c, [&](Attention& a, int) { a.clip = s.get_or<float>("attention.clamp_kqv", 0); });
  Moe moe = read_moe(s);
  moe.routing.normalise = s.get_or<bool>("expert_weights_norm", false);
  set_experts(c, moe);
  return c;
}

// Full layers have no rope, unless all layers are full.
void make_exaone(ModelConfig& c) {
  use_qk_norm(c);
  use_post_norms_only(c);
  bool any_slides = false;
  for_each_attention(c, [&](Attention& a, int) { any_slides |= a.window > 0; });
  for_each_attention(c, [&](Attention& a, int) { a.rope = !any_slides || a.window > 0 ? 0 : -1; });
}
ModelConfig exaone4_hf(const HfSettings& s) {
  s.ignore({"sliding_window_pattern"});
  ModelConfig c = read_base(s);
  set_windows(s, c, sliding_window(s, 0), [](int i) { return (i + 1) % 4 != 0; });
  make_exaone(c);
  return c;
}
ModelConfig exaone4_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_windows(s, c, [](int i) { return (i + 1) % 4 != 0; });
  make_exaone(c);
  return c;
}

constexpr std::string_view kOlmoNames[] = {"OlmoForCausalLM"}, kOlmo2Names[] = {"Olmo2ForCausalLM"},
                           kOlmo3Names[] = {"Olmo3ForCausalLM"}, kOlmoeNames[] = {"OlmoeForCausalLM"},
                           kExaone4Names[] = {"Exaone4ForCausalLM"}, kRopeFactors[] = {"rope_freqs.weight"};

}  // namespace

extern const Family kOlmo = {"olmo", kOlmoNames, "olmo", olmo_hf, olmo_gguf};
extern const Family kOlmo2 = {"olmo2", kOlmo2Names, "olmo2", olmo2_hf, olmo2_gguf, {kPostNormsHf}};
extern const Family kOlmo3 = {"olmo3", kOlmo3Names, {}, olmo3_hf, nullptr, {kPostNormsHf}};
extern const Family kOlmoe = {"olmoe", kOlmoeNames, "olmoe", olmoe_hf, olmoe_gguf};
extern const Family kExaone4 = {
    "exaone4", kExaone4Names, "exaone4", exaone4_hf, exaone4_gguf, {kPostNormsHf}, {.ignored = kRopeFactors}};

}  // namespace quire::olmo
