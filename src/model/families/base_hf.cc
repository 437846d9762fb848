// What config.json of most families have in common.

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/families.h"

namespace quire {
namespace {

RopeConfig::Scaling scaling_of(const std::string& name, const std::string& where) {
  using Scaling = RopeConfig::Scaling;
  static constexpr std::pair<std::string_view, Scaling> kNames[] = {
      {"default", Scaling::kNone},      {"none", Scaling::kNone},
      {"mrope", Scaling::kNone},        {"linear", Scaling::kLinear},
      {"llama3", Scaling::kLlama3},     {"yarn", Scaling::kYarn},
      {"longrope", Scaling::kLongRope}, {"su", Scaling::kLongRope},
      {"dynamic", Scaling::kDynamic},   {"proportional", Scaling::kProportional}};
  for (const auto& [known, scaling] : kNames) {
    if (known == name) return scaling;
  }
  throw unsupported(
      "{}: rope scaling '{}' is not supported; supported: default, linear, dynamic, llama3, yarn, longrope, "
      "proportional",
      where, name);
}

// YaRN's amplitude from DeepSeek's two scales, which cancel if they are equal.
std::optional<double> yarn_attention_factor(const JsonField& p, double factor) {
  if (const auto given = p.optional<double>("attention_factor")) return given;
  const auto scale = p.get_or<double>("mscale", 0), scale_all = p.get_or<double>("mscale_all_dim", 0);
  if (scale == 0 || scale_all == 0) return std::nullopt;
  return yarn_amplitude(factor, scale) / yarn_amplitude(factor, scale_all);
}

double partial_rotary(const HfSettings& s, const std::optional<JsonField>& parameters) {
  const auto whole = s.get_or<double>({"partial_rotary_factor", "rotary_pct"}, 1.0);
  return parameters ? parameters->get_or<double>("partial_rotary_factor", whole) : whole;
}

// Files of Nemotron-H name the kind of each layer and leave the number out.
int count_layers(const HfSettings& s) {
  const auto kinds = s.find("layers_block_type");
  if (kinds && !s.has("num_hidden_layers")) return static_cast<int>(kinds->json().size());
  return s.get<int>({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
}

bool is_nested(const JsonField& parameters) {
  return std::ranges::any_of(parameters.members(), [](const auto& m) { return m.second.json().is_object(); });
}

// rope_scaling next to rope_theta (transformers 4), or rope_parameters (transformers 5). The former takes precedence,
// as in transformers.
std::optional<JsonField> rope_parameters(const HfSettings& s) {
  auto parameters = s.find("rope_scaling");
  if (!parameters || parameters->json().empty()) parameters = s.find("rope_parameters");
  return parameters;
}

}  // namespace

double yarn_amplitude(double factor, double scale) { return factor > 1 ? 0.1 * scale * std::log(factor) + 1 : 1; }

RopeConfig read_rope(const HfSettings& s, const std::optional<JsonField>& parameters, int head_dim) {
  using Scaling = RopeConfig::Scaling;
  RopeConfig rope;
  rope.theta = s.get_or<double>({"rope_theta", "rotary_emb_base"}, 10000.0);
  const double part = partial_rotary(s, parameters);
  if (!(part > 0 && part <= 1))
    throw invalid("{}: {} is not a part of a head; it must be above 0 and at most 1", s.where("partial_rotary_factor"),
                  part);
  rope.dim = static_cast<int>(head_dim * part);
  if (s.has("rotary_dim")) rope.dim = s.get<int>("rotary_dim");
  const auto trained = s.get_or<double>({"max_position_embeddings", "n_positions"}, 0.0);
  if (!parameters) return rope;
  const JsonField& p = *parameters;
  rope.theta = p.get_or<double>("rope_theta", rope.theta);
  const char* key = p.has("rope_type") ? "rope_type" : "type";
  rope.scaling = scaling_of(p.get_or<std::string>(key, "default"), p.where(key));
  if (rope.scaling == Scaling::kNone) return rope;
  if (const auto alpha = p.get_or<double>("alpha", 0.0); rope.scaling == Scaling::kDynamic && alpha > 0) {
    // Hunyuan: stretched by a fixed amount, whatever the length.
    rope.theta *= std::pow(alpha, rope.dim / (rope.dim - 2.0));
    rope.scaling = Scaling::kNone;
    return rope;
  }
  if (rope.scaling == Scaling::kProportional) {
    rope.rotated = static_cast<int>(part * head_dim / 2) * 2;
    rope.dim = head_dim;
    rope.factor = p.get_or<double>("factor", 1.0);
    return rope;
  }
  rope.original_positions = s.get_or<double>("original_max_position_embeddings",
                                             p.get_or<double>("original_max_position_embeddings", trained));
  const bool derived = rope.scaling == Scaling::kYarn || rope.scaling == Scaling::kLongRope;
  rope.factor = derived && !p.has("factor") ? trained / rope.original_positions : p.get<double>("factor");
  rope.low_frequency_factor = p.get_or<double>("low_freq_factor", rope.low_frequency_factor);
  rope.high_frequency_factor = p.get_or<double>("high_freq_factor", rope.high_frequency_factor);
  rope.beta_fast = p.get_or<double>("beta_fast", rope.beta_fast);
  rope.beta_slow = p.get_or<double>("beta_slow", rope.beta_slow);
  rope.truncate = p.get_or<bool>("truncate", true);
  if (rope.scaling == Scaling::kYarn) rope.attention_factor = yarn_attention_factor(p, rope.factor);
  if (rope.scaling == Scaling::kLongRope) {
    rope.attention_factor = p.optional<double>("attention_factor");
    rope.short_factors = p.get<std::vector<double>>("short_factor");
    rope.long_factors = p.get<std::vector<double>>("long_factor");
  }
  return rope;
}

Nonlinearity nonlinearity_of(const HfSettings& s) {
  static constexpr std::pair<std::string_view, Nonlinearity> kNames[] = {{"silu", Nonlinearity::kSilu},
                                                                         {"swish", Nonlinearity::kSilu},
                                                                         {"swiglu", Nonlinearity::kSilu},
                                                                         {"gelu", Nonlinearity::kGelu},
                                                                         {"gelu_new", Nonlinearity::kGeluTanh},
                                                                         {"gelu_fast", Nonlinearity::kGeluTanh},
                                                                         {"gelu_pytorch_tanh", Nonlinearity::kGeluTanh},
                                                                         {"relu", Nonlinearity::kRelu},
                                                                         {"relu2", Nonlinearity::kRelu2}};
  // Gemma's first files say "gelu" in hidden_act and mean what hidden_activation says.
  const HfSettings::Keys keys = {"hidden_activation", "hidden_act", "activation_function", "activation"};
  const auto name = s.get_or<std::string>(keys, "silu");
  for (const auto& [known, nonlinearity] : kNames) {
    if (known == name) return nonlinearity;
  }
  throw unsupported("{}: '{}' is not supported; supported: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2",
                    s.where("hidden_act"), name);
}

ModelConfig read_base(const HfSettings& s) {
  ModelConfig c;
  const int layers = count_layers(s);
  c.hidden = s.get<int>({"hidden_size", "n_embd", "n_embed", "d_model", "dim"});
  c.vocab = s.get<int>("vocab_size");
  c.max_positions = s.get_or<int>(
      {"max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"}, 2048);
  c.tied_output = s.get_or<bool>("tie_word_embeddings", false);
  const EndTokens ends = end_tokens(s.files());
  c.bos = ends.bos;
  c.eos = ends.eos;

  Attention a;
  a.heads = s.get<int>({"num_attention_heads", "n_head", "n_heads"});
  a.kv_heads = s.get_or<int>({"num_key_value_heads", "num_kv_heads"}, a.heads);
  a.key_dim = a.value_dim = s.get_or<int>("head_dim", a.heads > 0 ? c.hidden / a.heads : 0);
  const auto parameters = rope_parameters(s);
  if (parameters && is_nested(*parameters)) {
    for (const char* kind : {"full_attention", "sliding_attention"})
      c.ropes.push_back(read_rope(s, parameters->at(kind), a.key_dim));
  } else {
    c.ropes.push_back(read_rope(s, parameters, a.key_dim));
  }
  Mlp mlp;
  const auto sizes = s.find("intermediate_size");  // a list if layers differ: the family reads it
  mlp.size = sizes && sizes->json().is_array()
                 ? 1
                 : s.get_or<int>({"intermediate_size", "ffn_hidden_size", "n_inner", "hidden_dim"}, 4 * c.hidden);
  mlp.nonlinearity = nonlinearity_of(s);
  LayerSpec layer{.mixer = a, .ffn = mlp};
  layer.mixer_in = layer.ffn_in = c.output_norm = {
      .kind = NormKind::kRms,
      .epsilon =
          s.get_or<float>({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"}, 1e-6f)};
  if (layers < 1 || layers > 1024)
    throw invalid("{}: the number of layers is {}; it must be 1 to 1024", s.where("num_hidden_layers"), layers);
  c.layers.assign(static_cast<size_t>(layers), layer);
  return c;
}

int sliding_window(const HfSettings& s, int fallback) {
  const int unset = s.files().config.json().contains("sliding_window") ? 0 : fallback;
  return s.get_or<int>("sliding_window", unset);
}

std::optional<std::vector<std::string>> layer_types(const HfSettings& s, const ModelConfig& c,
                                                    std::initializer_list<std::string_view> known) {
  const auto list = s.find("layer_types");
  if (!list) return std::nullopt;
  auto types = list->as<std::vector<std::string>>();
  if (types.size() != c.layers.size())
    throw invalid("{}: {} layer types for {} layers", s.where("layer_types"), types.size(), c.layers.size());
  for (const std::string& type : types) {
    if (std::ranges::find(known, type) == known.end())
      throw unsupported("{}: '{}' is not supported; supported: {}", s.where("layer_types"), type,
                        fmt::join(known, ", "));
  }
  return types;
}

void set_windows(const HfSettings& s, ModelConfig& c, int window, bool (*slides)(int layer)) {
  const auto types = layer_types(s, c, {"full_attention", "sliding_attention"});
  for_each_attention(c, [&](Attention& a, int layer) {
    const std::string type = types ? (*types)[static_cast<size_t>(layer)] : "";
    if (!(types ? type == "sliding_attention" : slides(layer))) return;
    a.window = window;
    if (c.ropes.size() > 1) a.rope = 1;
  });
}

Moe read_moe(const HfSettings& s) {
  Moe m;
  m.routing.experts = s.get<int>({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
  m.routing.used = s.get<int>({"num_experts_per_tok", "moe_k", "num_experts_per_token", "top_k_experts"});
  m.size = s.get_or<int>({"moe_intermediate_size", "intermediate_size"}, 0);
  m.routing.normalise = s.get_or<bool>("norm_topk_prob", true);
  m.nonlinearity = nonlinearity_of(s);
  return m;
}

void read_predicting_layers(const HfSettings& s, ModelConfig& c) {
  c.predicting_layers = s.get_or<int>("num_nextn_predict_layers", 0);
  c.first_predicting = static_cast<int>(c.layers.size());
}

void set_sparse_layers(const HfSettings& s, ModelConfig& c, const Moe& moe) {
  const int step = std::max(1, s.get_or<int>("decoder_sparse_step", 1));
  const auto dense = s.get_or<std::vector<int>>("mlp_only_layers", {});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const bool listed = std::ranges::find(dense, static_cast<int>(i)) != dense.end();
    if (!listed && (i + 1) % static_cast<size_t>(step) == 0) c.layers[i].ffn = moe;
  }
}

}  // namespace quire
