// What families change in the configuration that most share (read_base()), and where fused tensors lie.

#include <algorithm>
#include <utility>

#include "model/families.h"

namespace quire {

void set_experts(ModelConfig& c, const Moe& moe, int first) {
  for (size_t i = static_cast<size_t>(std::max(0, first)); i < c.layers.size(); ++i) c.layers[i].ffn = moe;
}

void use_layer_norm(ModelConfig& c, bool bias) {
  const auto change = [bias](Norm& n) { n = {.kind = NormKind::kLayer, .epsilon = n.epsilon, .bias = bias}; };
  change(c.output_norm);
  for (LayerSpec& layer : c.layers) {
    for (Norm* n : {&layer.mixer_in, &layer.mixer_out, &layer.ffn_in, &layer.ffn_out}) {
      if (*n) change(*n);
    }
  }
}

void share_caches(ModelConfig& c, int count) {
  const int layers = static_cast<int>(c.layers.size()), first = layers - std::clamp(count, 0, layers);
  for_each_attention(c, [&](Attention& a, int layer) {
    if (layer < first) return;
    for (int i = first - 1; i >= 0 && a.shares_cache < 0; --i) {
      const auto* other = std::get_if<Attention>(&c.layers[static_cast<size_t>(i)].mixer);
      if (other && (other->window > 0) == (a.window > 0)) a.shares_cache = i;
    }
  });
}

void add_output_norms(ModelConfig& c) {
  for (LayerSpec& layer : c.layers) layer.mixer_out = layer.ffn_out = layer.mixer_in;
}

void use_post_norms_only(ModelConfig& c) {
  for (LayerSpec& layer : c.layers) {
    layer.mixer_out = std::exchange(layer.mixer_in, {});
    layer.ffn_out = std::exchange(layer.ffn_in, {});
  }
}

void use_qk_norm(ModelConfig& c) {
  for_each_attention(c, [&](Attention& a, int) { a.q_norm = a.k_norm = c.output_norm; });
}

void set_rope_kind(ModelConfig& c, RopeKind kind) {
  for (RopeConfig& rope : c.ropes) rope.kind = kind;
}

void set_nonlinearity(ModelConfig& c, Nonlinearity nonlinearity, bool gated) {
  for_each_mlp(c, [&](Mlp& mlp) {
    mlp.nonlinearity = nonlinearity;
    mlp.gated = gated;
  });
}

void use_parallel_layers(ModelConfig& c) {
  for (LayerSpec& layer : c.layers) layer.parallel = layer.shared_norm = true;
}

void use_alibi(ModelConfig& c) {
  c.ropes.clear();
  for_each_attention(c, [](Attention& a, int) {
    a.rope = -1;
    a.alibi = true;
  });
}

void add_local_rope(ModelConfig& c, double theta) {
  RopeConfig local;
  local.kind = c.ropes[0].kind;
  local.dim = c.ropes[0].dim;
  local.theta = theta;
  c.ropes.push_back(local);
}

void place_concatenated(const ModelConfig& c, const Slot& slot, Source& source) {
  const LayerSpec& layer = c.layers[static_cast<size_t>(std::max(0, slot.layer))];
  switch (slot.tensor) {
    case Tensor::kQ:
    case Tensor::kK:
    case Tensor::kV: {
      const auto& a = std::get<Attention>(layer.mixer);
      const int q = a.heads * a.key_dim, k = a.kv_heads * a.key_dim, v = a.kv_heads * a.value_dim;
      source.rows = q + k + v;
      source.first = slot.tensor == Tensor::kQ ? 0 : slot.tensor == Tensor::kK ? q : q + k;
      break;
    }
    case Tensor::kGate:
    case Tensor::kUp: {
      const auto& mlp = std::get<Mlp>(layer.ffn);
      if (!mlp.gated) break;
      source.rows = 2 * mlp.size;
      source.first = slot.tensor == Tensor::kGate ? 0 : mlp.size;
      break;
    }
    default:
      break;
  }
}

void renumber_layer(const Slot& slot, int number, Source& source) {
  const std::string old = "." + std::to_string(slot.layer) + ".";
  source.name.replace(source.name.find(old), old.size(), "." + std::to_string(number) + ".");
}

void place_grouped(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kQ && slot.tensor != Tensor::kK && slot.tensor != Tensor::kV) return;
  const auto& a = std::get<Attention>(c.layers[static_cast<size_t>(slot.layer)].mixer);
  const int q = a.group() * a.key_dim, group = q + a.key_dim + a.value_dim;
  source.rows = a.kv_heads * group;
  source.step = group;
  source.first = slot.tensor == Tensor::kQ ? 0 : slot.tensor == Tensor::kK ? q : q + a.key_dim;
  source.run = slot.tensor == Tensor::kQ ? q : slot.tensor == Tensor::kK ? a.key_dim : a.value_dim;
}

void use_learned_positions(ModelConfig& c) {
  c.learned_positions = true;
  c.ropes.clear();
  for_each_attention(c, [](Attention& a, int) { a.rope = -1; });
}

}  // namespace quire
