#include "speculate/network/eagle.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "speculate/network/head_tensors.h"

namespace quire {
namespace {

// The layer is shaped like the target's last one with attention, but plain: RMS norms, a gated MLP with SiLU, no bias.
ModelConfig eagle_config(const ModelConfig& target, const std::string& file) {
  const Attention* like = nullptr;
  int window = 0;
  bool sees_all = false;
  for (const LayerSpec& layer : target.layers) {
    const auto* a = std::get_if<Attention>(&layer.mixer);
    if (!a) continue;
    if (!like || a->rope >= 0 || like->rope < 0) like = a;  // with positions, where any layer has them
    sees_all = sees_all || a->window == 0;
    window = std::max(window, a->window);
  }
  if (!like || !like->causal || !target.has_logits)
    throw unsupported(
        "{}: the target, of the {} architecture, has no layer with attention that an EAGLE head could be like", file,
        target.architecture);
  Attention attention;
  attention.heads = like->heads;
  attention.kv_heads = like->kv_heads;
  attention.key_dim = like->key_dim;
  attention.value_dim = like->value_dim;
  attention.rope = like->rope >= 0 ? 0 : -1;
  // Where all of the target's layers forget, so does the head: its pages are freed with theirs.
  attention.window = sees_all ? 0 : window;
  attention.scale = 1 / std::sqrt(static_cast<float>(like->key_dim));
  ModelConfig c;
  c.architecture = "eagle";
  c.hidden = target.hidden;
  c.vocab = target.vocab;
  c.max_positions = target.max_positions;
  c.output_norm = target.output_norm;
  c.input_forms = target.input_forms;
  c.joined_input = JoinedInput{};
  c.logit_scale = target.logit_scale;
  c.logit_soft_cap = target.logit_soft_cap;
  if (like->rope >= 0) {
    c.ropes.push_back(target.ropes[static_cast<size_t>(like->rope)]);
    c.ropes[0].kind = RopeKind::kHalves;  // as in Hugging Face, whatever the target's file
  }
  const Norm norm{.kind = NormKind::kRms, .epsilon = target.output_norm.epsilon};
  LayerSpec& layer = c.layers.emplace_back();
  layer.mixer = attention;
  layer.ffn = Mlp{};
  layer.mixer_in = layer.ffn_in = norm;
  return c;
}

// Lists the head's tensors, which read() then fills.
void list_tensors(HeadTensors& file, const ModelConfig& target, FeatureLayer& head) {
  head.config = eagle_config(target, file.file());
  const int hidden = target.hidden, size = file.rows("layer.mlp.gate_proj.weight", hidden);
  std::get<Mlp>(head.config.layers[0].ffn).size = size;
  const auto& a = std::get<Attention>(head.config.layers[0].mixer);
  LayerWeights& w = head.weights.layers.emplace_back();
  file.matrix("fc.weight", hidden, 2 * hidden, head.weights.join);
  file.vector("layer.input_layernorm.weight", hidden, w.mixer_in.weight);
  file.matrix("layer.self_attn.q_proj.weight", a.heads * a.key_dim, hidden, w.attention.q);
  file.matrix("layer.self_attn.k_proj.weight", a.kv_heads * a.key_dim, hidden, w.attention.k);
  file.matrix("layer.self_attn.v_proj.weight", a.kv_heads * a.value_dim, hidden, w.attention.v);
  file.matrix("layer.self_attn.o_proj.weight", hidden, a.heads * a.value_dim, w.attention.o);
  file.vector("layer.post_attention_layernorm.weight", hidden, w.ffn_in.weight);
  file.matrix("layer.mlp.gate_proj.weight", size, hidden, w.mlp.gate);
  file.matrix("layer.mlp.up_proj.weight", size, hidden, w.mlp.up);
  file.matrix("layer.mlp.down_proj.weight", hidden, size, w.mlp.down);
}

void check_gate(const HeadTensors& file, const FeatureLayer& head) {
  const MlpWeights& mlp = head.weights.layers[0].mlp;
  if (mlp.gate.weight.format != mlp.up.weight.format)
    throw unsupported("{}: layer.mlp.gate_proj.weight and layer.mlp.up_proj.weight must have one type", file.file());
}

}  // namespace

FeatureLayer read_eagle(const std::filesystem::path& path, const ModelConfig& target, Backend& backend, Team& team) {
  HeadTensors file(path);
  FeatureLayer head;
  list_tensors(file, target, head);
  // Without the MLP's size, which the file's hash covers.
  head.identity = config_identity(eagle_config(target, file.file())) + " " + file.identity();
  head.weights.memory = file.read(backend, team);
  check_gate(file, head);
  return head;
}

FeatureTotals check_eagle(const std::filesystem::path& path, const ModelConfig& target) {
  HeadTensors file(path);
  FeatureLayer head;
  list_tensors(file, target, head);
  const uint64_t bytes = file.checked_bytes();
  check_gate(file, head);
  return {std::move(head.config), bytes, {}};
}

}  // namespace quire
