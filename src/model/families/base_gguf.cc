// What the metadata of most GGUF files have in common.

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
  if (const auto value = s.get_or<double>("rope.scaling.yarn_ext_factor", 1.0); value != 1)
    throw unsupported("{} is {}; only 1 is supported", s.where("rope.scaling.yarn_ext_factor"), value);
  // The attention_factor of config.json (OLMo 3).
  if (const auto value = s.get_or<double>("rope.scaling.yarn_attn_factor", 1.0); value != 1) {
    if (r.scaling != Scaling::kYarn)
      throw unsupported("{} is {}; only yarn has one", s.where("rope.scaling.yarn_attn_factor"), value);
    r.attention_factor = value;
  }
  if (const auto factor = s.get_or<double>("rope.scaling.attn_factor", 1.0); factor != 1) {
    // Files of Phi-3 do not name their scaling: it is in two tensors.
    if (r.scaling != Scaling::kYarn && r.scaling != Scaling::kLongRope &&
        !s.file().find_tensor("rope_factors_long.weight"))
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

Moe read_moe(const GgufSettings& s) {
  Moe m;
  m.routing.experts = s.get<int>("expert_count");
  m.routing.used = s.get<int>("expert_used_count");
  const char* size = s.has("expert_feed_forward_length") ? "expert_feed_forward_length" : "feed_forward_length";
  m.size = s.get_or<int>(size, 0);
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
  if (count < 0 || std::cmp_greater_equal(count, c.layers.size()))
    throw invalid("{} is {}; it must be at least 0 and below the number of layers, {}", s.where("nextn_predict_layers"),
                  count, c.layers.size());
  c.layers.resize(c.layers.size() - static_cast<size_t>(count));
  c.predicting_layers = count;
  c.first_predicting = static_cast<int>(c.layers.size());
}

}  // namespace quire
