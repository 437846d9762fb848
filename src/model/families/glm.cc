// GLM-4: Llama with biases, [gate; up] in one tensor, and rope of neighbours in half of each head. GLM-4-0414 also
// normalises the results of attention and MLP.

#include "model/families.h"

namespace quire::glm {
namespace {

constexpr TensorName kHf[] = {{Tensor::kGate, "model.layers.{}.mlp.gate_up_proj.weight"},
                              {Tensor::kUp, "model.layers.{}.mlp.gate_up_proj.weight"},
                              {Tensor::kMixerOutNorm, "model.layers.{}.post_self_attn_layernorm.weight"},
                              {Tensor::kFfnOutNorm, "model.layers.{}.post_mlp_layernorm.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kGate, "blk.{}.ffn_up.weight"}, {Tensor::kUp, "blk.{}.ffn_up.weight"}};
constexpr std::string_view kIgnored[] = {"rope_freqs.weight"};

// Files of the first GLM-4 also fuse queries, keys and values.
void place(const ModelConfig& c, const Slot& slot, Source& source) {
  const bool fused = source.name.find("attn_qkv") != std::string::npos;
  if (fused || slot.tensor == Tensor::kGate || slot.tensor == Tensor::kUp) place_concatenated(c, slot, source);
}

ModelConfig glm_hf(const HfSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  const auto rope = s.find("rope_parameters");
  if (!s.has("partial_rotary_factor") && !(rope && rope->has("partial_rotary_factor"))) c.ropes[0].dim /= 2;
  return c;
}
ModelConfig glm_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  set_rope_kind(c, RopeKind::kNeighbours);
  return c;
}

ModelConfig glm4_hf(const HfSettings& s) {
  ModelConfig c = glm_hf(s);
  add_output_norms(c);
  return c;
}
ModelConfig glm4_gguf(const GgufSettings& s) {
  ModelConfig c = glm_gguf(s);
  add_output_norms(c);
  return c;
}

constexpr std::string_view kGlmNames[] = {"GlmForCausalLM"}, kGlm4Names[] = {"Glm4ForCausalLM"};

}  // namespace

extern const Family kGlm = {
    "glm", kGlmNames, "chatglm", glm_hf, glm_gguf, {kHf, place}, {kGguf, place, kIgnored, kFusedQkvGguf}};
extern const Family kGlm4 = {"glm4", kGlm4Names, "glm4", glm4_hf, glm4_gguf, {kHf, place}, {kGguf, place}};

}  // namespace quire::glm
