// Falcon-H1: attention and Mamba-2 read the same input in each layer, and their results are added. Multipliers everywhere;
// llama.cpp's converter multiplies the weights by them. Here a layer of the file is two, of which the first is joined.

#include <cmath>

#include "model/families.h"

namespace quire::falcon_h1 {
namespace {

constexpr TensorName kHf[] = {{Tensor::kOutputNorm, "model.final_layernorm.weight"},
                              {Tensor::kFfnNorm, "model.layers.{}.pre_ff_layernorm.weight"},
                              {Tensor::kConv, "model.layers.{}.mamba.conv1d.weight"},
                              {Tensor::kDecay, "model.layers.{}.mamba.A_log"},
                              {Tensor::kStepBias, "model.layers.{}.mamba.dt_bias"},
                              {Tensor::kMixNorm, "model.layers.{}.mamba.norm.weight"},
                              {Tensor::kMixOut, "model.layers.{}.mamba.out_proj.weight"},
                              {Tensor::kGate, "model.layers.{}.feed_forward.gate_proj.weight"},
                              {Tensor::kUp, "model.layers.{}.feed_forward.up_proj.weight"},
                              {Tensor::kDown, "model.layers.{}.feed_forward.down_proj.weight"}};
constexpr TensorName kGguf[] = {{Tensor::kFfnNorm, "blk.{}.ffn_norm"}};

void place(const ModelConfig&, const Slot& slot, Source& source) {
  if (slot.layer >= 0) renumber_layer(slot, slot.layer / 2, source);
}

void put_before_each(ModelConfig& c, const LayerSpec& mamba) {
  std::vector<LayerSpec> layers;
  for (const LayerSpec& layer : c.layers) {
    layers.push_back(mamba);
    layers.push_back(layer);
  }
  c.layers = std::move(layers);
}
LayerSpec joined_layer(const ModelConfig& c, const Mamba2& mamba) {
  LayerSpec layer;
  layer.mixer = mamba;
  layer.mixer_in = c.layers[0].mixer_in;
  layer.joined = true;
  return layer;
}

Mamba2 read_mamba(const HfSettings& s, const ModelConfig& c) {
  refuse_bounded_steps(s);
  const int heads = s.get<int>("mamba_n_heads"),
            inner = s.get_or<int>("mamba_d_ssm", s.get_or<int>("mamba_expand", 2) * c.hidden);
  Mamba2 m{.heads = heads,
           .head_dim = inner / std::max(1, heads),
           .state_dim = s.get_or<int>("mamba_d_state", 256),
           .groups = s.get_or<int>("mamba_n_groups", 1),
           .width = s.get_or<int>("mamba_d_conv", 4),
           .conv_bias = s.get_or<bool>("mamba_conv_bias", true)};
  if (s.get_or<bool>("mamba_rms_norm", false)) {
    if (s.get_or<bool>("mamba_norm_before_gate", true))
      throw unsupported("{}: true is not supported", s.where("mamba_norm_before_gate"));
    m.norm = {.kind = NormKind::kRms, .epsilon = c.output_norm.epsilon};
    m.norm_groups = m.groups;
  }
  const auto scales = s.get_or<std::vector<float>>("ssm_multipliers", {1, 1, 1, 1, 1});
  if (scales.size() != m.scales.size())
    throw invalid("{}: {} numbers, expected {}", s.where("ssm_multipliers"), scales.size(), m.scales.size());
  for (size_t i = 0; i < scales.size(); ++i) m.scales[i] = scales[i] * s.get_or<float>("ssm_in_multiplier", 1);
  return m;
}

ModelConfig from_hf(const HfSettings& s) {
  s.ignore({"layer_types"});  // all are hybrid
  ModelConfig c = read_base(s);
  c.embedding_scale = s.get_or<float>("embedding_multiplier", 1);
  c.logit_scale = s.get_or<float>("lm_head_multiplier", 1);
  const auto mlp_scales = s.get_or<std::vector<float>>("mlp_multipliers", {1, 1});
  if (mlp_scales.size() != 2)
    throw invalid("{}: {} numbers, expected 2", s.where("mlp_multipliers"), mlp_scales.size());
  const auto in = s.get_or<float>("attention_in_multiplier", 1), key = s.get_or<float>("key_multiplier", 1);
  for_each_mlp(c, [&](Mlp& mlp) { mlp.gate_scale = mlp_scales[0]; });
  // Attention is linear in queries, keys and values.
  for_each_attention(c, [&](Attention& a, int) { a.scale = in * in * key / std::sqrt(static_cast<float>(a.key_dim)); });
  for (LayerSpec& layer : c.layers) {
    layer.mixer_scale = in * s.get_or<float>("attention_out_multiplier", 1);
    layer.ffn_scale = mlp_scales[1];
  }
  LayerSpec mamba = joined_layer(c, read_mamba(s, c));
  mamba.mixer_scale = s.get_or<float>("ssm_out_multiplier", 1);
  put_before_each(c, mamba);
  return c;
}

ModelConfig from_gguf(const GgufSettings& s) {
  ModelConfig c = read_base(s);
  Mamba2 mamba = read_mamba2(s, c);
  if (!s.file().find_tensor("blk.0.ssm_norm.weight")) mamba.norm = {};
  put_before_each(c, joined_layer(c, mamba));
  return c;
}

constexpr std::string_view kNames[] = {"FalconH1ForCausalLM"};

}  // namespace

extern const Family kFalconH1 = {"falcon_h1", kNames, "falcon-h1", from_hf, from_gguf, {kHf, place}, {kGguf, place}};

}  // namespace quire::falcon_h1
