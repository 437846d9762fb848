#include "speculate/eagle.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "speculate/head_tensors.h"

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

struct Memory {
  Rows joined, z;
  InputMemory inputs;
  size_t bytes = 0;
};
// memory: nullptr to count bytes.
Memory carve(const ModelConfig& c, int rows, std::byte* memory) {
  Memory m;
  const auto part = [&](size_t size) {
    const size_t begin = m.bytes;
    m.bytes += (size + 63) / 64 * 64;
    return memory ? memory + begin : nullptr;
  };
  const auto rows_of = [&](int cols) {
    const size_t stride = row_stride(cols);
    return Rows{reinterpret_cast<float*>(part(static_cast<size_t>(rows) * stride * sizeof(float))), cols, stride};
  };
  m.joined = rows_of(2 * c.hidden);
  m.z = rows_of(c.hidden);
  const InputMemory::Need need{rows, 2 * c.hidden};
  m.inputs = InputMemory(part(InputMemory::bytes({&need, 1}, {})), {&need, 1}, {});
  return m;
}

DecoderLimits with_hidden(DecoderLimits limits) {
  if (limits.max_hidden == 0) limits.max_hidden = limits.max_rows;
  return limits;
}

// The layer's own weights with what it takes from the target.
const Weights& complete(Weights& of_layer, const Weights& target) {
  of_layer.output_norm = target.output_norm;
  return of_layer;
}

}  // namespace

EagleHead read_eagle(const std::filesystem::path& path, const ModelConfig& target, Team& team) {
  HeadTensors file(path);
  EagleHead head;
  head.config = eagle_config(target, file.file());
  head.identity = config_identity(head.config) + " " + file.identity();
  const int hidden = target.hidden, size = file.rows("layer.mlp.gate_proj.weight", hidden);
  std::get<Mlp>(head.config.layers[0].ffn).size = size;
  const auto& a = std::get<Attention>(head.config.layers[0].mixer);
  LayerWeights& w = head.weights.layers.emplace_back();
  file.matrix("fc.weight", hidden, 2 * hidden, head.fc);
  file.vector("layer.input_layernorm.weight", hidden, w.mixer_in.weight);
  file.matrix("layer.self_attn.q_proj.weight", a.heads * a.key_dim, hidden, w.attention.q);
  file.matrix("layer.self_attn.k_proj.weight", a.kv_heads * a.key_dim, hidden, w.attention.k);
  file.matrix("layer.self_attn.v_proj.weight", a.kv_heads * a.value_dim, hidden, w.attention.v);
  file.matrix("layer.self_attn.o_proj.weight", hidden, a.heads * a.value_dim, w.attention.o);
  file.vector("layer.post_attention_layernorm.weight", hidden, w.ffn_in.weight);
  file.matrix("layer.mlp.gate_proj.weight", size, hidden, w.mlp.gate);
  file.matrix("layer.mlp.up_proj.weight", size, hidden, w.mlp.up);
  file.matrix("layer.mlp.down_proj.weight", hidden, size, w.mlp.down);
  head.weights.memory = file.read(team);
  if (w.mlp.gate.weight.format != w.mlp.up.weight.format)
    throw unsupported("{}: layer.mlp.gate_proj.weight and layer.mlp.up_proj.weight must have one type", file.file());
  return head;
}

Eagle::Eagle(EagleHead head, const ModelConfig& target, const Weights& target_weights, CacheMemory& cache,
             const Compute& compute, DecoderLimits limits, int first_layer)
    : head_(std::move(head)),
      target_(target),
      target_weights_(target_weights),
      compute_(compute),
      decoder_(head_.config, complete(head_.weights, target_weights), cache, compute, with_hidden(limits), first_layer),
      memory_(carve(head_.config, limits.max_rows, nullptr).bytes) {
  const Memory m = carve(head_.config, limits.max_rows, memory_.data());
  joined_ = m.joined;
  z_ = m.z;
  inputs_ = m.inputs;
  ids_.reserve(static_cast<size_t>(limits.max_rows));
  rows_.reserve(static_cast<size_t>(limits.max_rows));
}

size_t Eagle::memory_bytes(const ModelConfig& config, const DecoderLimits& limits, int threads) {
  return carve(config, limits.max_rows, nullptr).bytes + Decoder::memory_bytes(config, with_hidden(limits), threads);
}

std::span<float> Eagle::forward(const Batch& batch, const Rows& features, const Linear& output) {
  const auto count = static_cast<int>(batch.rows.size());
  const int hidden = head_.config.hidden;
  assert(count <= decoder_.limits().max_rows && features.cols == hidden);
  ids_.clear();
  rows_.assign(batch.rows.begin(), batch.rows.end());
  for (Row& row : rows_) ids_.push_back(std::exchange(row.token, kNoToken));
  embed(compute_, target_weights_.embedding.weight, ids_, target_.embedding_scale, joined_.columns(0, hidden));
  copy(compute_, features, joined_.columns(hidden, hidden), count);
  const Inputs in = inputs_.prepare(compute_, joined_, {}, count, {&head_.fc});
  const LinearArgs fc = linear_args(compute_, in, head_.fc, z_);
  linears(compute_, {&fc, 1}, count);
  return decoder_.forward({rows_, batch.spans, z_}, {.output = &output});
}

}  // namespace quire
