// What the metadata of most GGUF files have in common, and changes that families make to the base.

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/families.h"

namespace quire {
namespace {

RopeConfig read_rope(const GgufSettings& s, int head_dim, int context) {
  using Scaling = RopeConfig::Scaling;
  RopeConfig r;
  r.kind = RopeKind::kHalves;  // llama.cpp permutes queries and keys for a few architectures only
  r.dim = s.get_or<int>("rope.dimension_count", head_dim);
  r.theta = s.get_or<double>("rope.freq_base", 10000.0);
  const auto type = s.get_or<std::string>("rope.scaling.type", "none");
  if (type == "linear") {
    r.scaling = Scaling::kLinear;
  } else if (type == "yarn") {
    r.scaling = Scaling::kYarn;
  } else if (type == "longrope") {
    r.scaling = Scaling::kLongRope;
  } else if (type != "none") {
    throw unsupported("{}: rope scaling '{}' is not supported; supported: none, linear, yarn, longrope",
                      s.where("rope.scaling.type"), type);
  }
  r.factor = s.get_or<double>("rope.scaling.factor", s.get_or<double>("rope.scale_linear", 1.0));
  if (r.scaling == Scaling::kNone && r.factor != 1) r.scaling = Scaling::kLinear;
  r.original_positions = s.get_or<int>("rope.scaling.original_context_length", context);
  r.beta_fast = s.get_or<double>("rope.scaling.yarn_beta_fast", r.beta_fast);
  r.beta_slow = s.get_or<double>("rope.scaling.yarn_beta_slow", r.beta_slow);
  for (const char* other : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    if (const auto value = s.get_or<double>(other, 1.0); value != 1)
      throw unsupported("{} is {}; only 1 is supported", s.where(other), value);
  }
  if (const auto factor = s.get_or<double>("rope.scaling.attn_factor", 1.0); factor != 1) {
    if (r.scaling != Scaling::kYarn && r.scaling != Scaling::kLongRope)
      throw unsupported("{} is {}; only yarn and longrope have one", s.where("rope.scaling.attn_factor"), factor);
    r.attention_factor = factor;
  }
  if (const TensorView* divisors = s.file().find_tensor("rope_freqs.weight")) {
    if (divisors->type != TensorType::F32)
      throw unsupported("{}: rope_freqs.weight is {}, expected F32", s.file().file(), name(divisors->type));
    r.frequency_divisors.resize(divisors->bytes.size() / sizeof(float));
    std::copy_n(divisors->bytes.begin(), divisors->bytes.size(),
                reinterpret_cast<std::byte*>(r.frequency_divisors.data()));
  }
  return r;
}

}  // namespace

ModelConfig read_base(const GgufSettings& s) {
  ModelConfig c;
  const Gguf& gguf = s.file();
  const int layers = s.get<int>("block_count");
  if (layers < 1 || layers > 1024)
    throw invalid("{}: the number of layers is {}; it must be 1 to 1024", gguf.file(), layers);
  c.hidden = s.get<int>("embedding_length");
  c.max_positions = s.get<int>("context_length");
  const TensorView* embedding = gguf.find_tensor("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    throw invalid("{}: tensor token_embd.weight is missing or not a matrix; is this file only a vocabulary?",
                  gguf.file());
  c.vocab = static_cast<int>(std::min<uint64_t>(embedding->shape[0], 1u << 30));
  c.tied_output = gguf.find_tensor("output.weight") == nullptr;

  const std::vector<int> heads = s.per_layer("attention.head_count", layers, 0),
                         kv_heads = s.per_layer("attention.head_count_kv", layers, heads[0]),
                         sizes = s.per_layer("feed_forward_length", layers, 0);
  Attention a;
  a.key_dim = s.get_or<int>("attention.key_length", heads[0] > 0 ? c.hidden / heads[0] : 0);
  a.value_dim = s.get_or<int>("attention.value_length", a.key_dim);
  a.scale = s.get_or<float>("attention.scale", 0.0f);
  c.ropes.push_back(read_rope(s, a.key_dim, c.max_positions));
  const char* rms = "attention.layer_norm_rms_epsilon";
  LayerSpec layer;
  layer.mixer_in = layer.ffn_in = c.output_norm = {.kind = NormKind::kRms,
                                                   .epsilon = s.has(rms) || !s.has("attention.layer_norm_epsilon")
                                                                  ? s.get<float>(rms)
                                                                  : s.get<float>("attention.layer_norm_epsilon")};
  for (size_t i = 0; std::cmp_less(i, layers); ++i) {
    a.heads = heads[i];
    a.kv_heads = kv_heads[i];
    layer.mixer = a;
    layer.ffn = Mlp{.size = sizes[i]};
    c.layers.push_back(layer);
  }
  return c;
}

void set_windows(const GgufSettings& s, ModelConfig& c, bool (*slides)(int layer)) {
  const int window = s.get_or<int>("attention.sliding_window", 0);
  std::optional<std::vector<bool>> flags;
  if (s.has("attention.sliding_window_pattern"))
    flags = s.flags_per_layer("attention.sliding_window_pattern", static_cast<int>(c.layers.size()));
  for_each_attention(c, [&](Attention& a, int layer) {
    if (!(flags ? (*flags)[static_cast<size_t>(layer)] : slides(layer))) return;
    a.window = window;
    if (c.ropes.size() > 1) a.rope = 1;
  });
}

void set_experts(ModelConfig& c, const Moe& moe, int first) {
  for (size_t i = static_cast<size_t>(std::max(0, first)); i < c.layers.size(); ++i) c.layers[i].ffn = moe;
}

Moe read_moe(const GgufSettings& s) {
  Moe m;
  m.routing.experts = s.get<int>("expert_count");
  m.routing.used = s.get<int>("expert_used_count");
  m.size = s.get_or<int>("expert_feed_forward_length", s.get_or<int>("feed_forward_length", 0));
  m.routing.scale = s.get_or<float>("expert_weights_scale", 1.0f);
  if (m.routing.scale == 0) m.routing.scale = 1;  // some writers' spelling of "none"
  m.routing.normalise = s.get_or<bool>("expert_weights_norm", true);
  m.routing.groups = std::max(1, s.get_or<int>("expert_group_count", 1));
  m.routing.groups_used = std::max(1, s.get_or<int>("expert_group_used_count", 1));
  switch (const int function = s.get_or<int>("expert_gating_func", 1)) {
    case 0:
    case 1:
      m.routing.scores = Routing::Scores::kSoftmax;
      break;
    case 2:
      m.routing.scores = Routing::Scores::kSigmoid;
      break;
    case 3:
      m.routing.scores = Routing::Scores::kSoftmaxOfChosen;
      break;
    default:
      throw unsupported("{}: {} is not supported; supported: 1 (softmax), 2 (sigmoid), 3 (softmax of the chosen)",
                        s.where("expert_gating_func"), function);
  }
  return m;
}

void drop_predicting_layers(const GgufSettings& s, ModelConfig& c) {
  const int count = s.get_or<int>("nextn_predict_layers", 0);
  if (count > 0 && std::cmp_less(count, c.layers.size())) c.layers.resize(c.layers.size() - static_cast<size_t>(count));
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

void place_grouped(const ModelConfig& c, const Slot& slot, Source& source) {
  if (slot.tensor != Tensor::kQ && slot.tensor != Tensor::kK && slot.tensor != Tensor::kV) return;
  const auto& a = std::get<Attention>(c.layers[static_cast<size_t>(slot.layer)].mixer);
  const int q = a.group() * a.key_dim, group = q + a.key_dim + a.value_dim;
  source.rows = a.kv_heads * group;
  source.step = group;
  source.first = slot.tensor == Tensor::kQ ? 0 : slot.tensor == Tensor::kK ? q : q + a.key_dim;
  source.run = slot.tensor == Tensor::kQ ? q : slot.tensor == Tensor::kK ? a.key_dim : a.value_dim;
}

}  // namespace quire
