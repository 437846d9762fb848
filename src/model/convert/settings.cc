#include "model/convert/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <optional>

namespace quire {
namespace {

// Adds keys under the architecture's prefix.
class Keys {
 public:
  Keys(std::string_view architecture, GgufHeader& header) : architecture_(architecture), header_(header) {}

  bool is(std::string_view architecture) const { return architecture_ == architecture; }
  void u32(std::string_view name, int64_t value) { header_.u32(key(name), value); }
  void f32(std::string_view name, double value) { header_.f32(key(name), value); }
  void flag(std::string_view name, bool value) { header_.flag(key(name), value); }
  void string(std::string_view name, std::string_view value) { header_.string(key(name), value); }
  void flags(std::string_view name, const std::vector<bool>& values) { header_.flags(key(name), values); }
  // One number if all layers have it.
  void per_layer(std::string_view name, const std::vector<int32_t>& values) {
    if (std::ranges::all_of(values, [&](int32_t v) { return v == values[0]; })) return u32(name, values[0]);
    header_.numbers(key(name), values);
  }

 private:
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  const std::string architecture_;
  GgufHeader& header_;
};

const Moe* first_moe(const ModelConfig& c) {
  for (const LayerSpec& layer : c.layers) {
    if (const auto* moe = std::get_if<Moe>(&layer.ffn)) return moe;
  }
  return nullptr;
}
const Attention* first_mixer(const ModelConfig& c) {
  for (const LayerSpec& layer : c.layers) {
    if (const auto* attention = std::get_if<Attention>(&layer.mixer)) return attention;
  }
  return nullptr;
}

void add_rope(const ModelConfig& c, Keys& keys) {
  using Scaling = RopeConfig::Scaling;
  if (c.ropes.empty()) return;
  const RopeConfig& rope = c.ropes[0];
  keys.u32("rope.dimension_count", rope.dim);
  keys.f32("rope.freq_base", rope.theta);
  if (c.ropes.size() > 1 && c.ropes[1].theta != rope.theta) keys.f32("rope.freq_base_swa", c.ropes[1].theta);
  if (rope.scaling == Scaling::kLinear || rope.scaling == Scaling::kYarn) {
    keys.string("rope.scaling.type", rope.scaling == Scaling::kLinear ? "linear" : "yarn");
    keys.f32("rope.scaling.factor", rope.factor);
  }
  if (rope.scaling == Scaling::kYarn || rope.scaling == Scaling::kLongRope)
    keys.u32("rope.scaling.original_context_length", std::llround(rope.original_positions));
  if (rope.scaling == Scaling::kYarn) {
    keys.f32("rope.scaling.yarn_beta_fast", rope.beta_fast);
    keys.f32("rope.scaling.yarn_beta_slow", rope.beta_slow);
    // Ministral 3: any number but 0 turns off the growth of cosines and sines.
    if (keys.is("mistral3") && rope.attention_factor == 1.0) keys.f32("rope.scaling.yarn_log_multiplier", 1);
  }
  if (rope.scaling == Scaling::kLongRope) keys.f32("rope.scaling.attn_factor", make_rope_table(rope).amplitude);
}

void add_attention(const ModelConfig& c, Keys& keys) {
  std::vector<int32_t> heads, kv_heads;
  std::vector<bool> slides;
  int window = 0;
  for (const LayerSpec& layer : c.layers) {
    const auto* a = std::get_if<Attention>(&layer.mixer);
    heads.push_back(a ? a->heads : 0);
    kv_heads.push_back(a ? a->kv_heads : 0);
    slides.push_back(a && a->window > 0);
    window = std::max(window, a ? a->window : 0);
  }
  const Attention* a = first_mixer(c);
  if (!a) return;
  keys.per_layer("attention.head_count", heads);
  keys.per_layer("attention.head_count_kv", kv_heads);
  keys.u32("attention.key_length", a->key_dim);
  keys.u32("attention.value_length", a->value_dim);
  if (window > 0) keys.u32("attention.sliding_window", window);
  if (window > 0 && std::ranges::find(slides, false) != slides.end())
    keys.flags("attention.sliding_window_pattern", slides);
  if (!a->causal) keys.flag("attention.causal", false);
  if (a->soft_cap != 0) keys.f32("attn_logit_softcapping", a->soft_cap);
  if (a->clip != 0) keys.f32("attention.clamp_kqv", a->clip);
  if (a->alibi && keys.is("mpt")) keys.f32("attention.max_alibi_bias", a->alibi_max);
  if (keys.is("granite")) keys.f32("attention.scale", a->scale);
  if (a->query_beta != 0) keys.f32("attention.temperature_scale", a->query_beta);
}

// llama.cpp sees latent attention as one KV head that all heads share.
void add_latent_attention(const ModelConfig& c, Keys& keys) {
  const auto* m = std::get_if<Mla>(&c.layers[0].mixer);
  if (!m) return;
  const int key = m->nope_dim + m->rope_dim;
  keys.u32("attention.head_count", m->heads);
  keys.u32("attention.head_count_kv", 1);
  keys.u32("attention.key_length", m->key_dim());
  keys.u32("attention.value_length", m->kv_rank);
  keys.u32("attention.key_length_mla", key);
  keys.u32("attention.value_length_mla", m->value_dim);
  keys.u32("attention.kv_lora_rank", m->kv_rank);
  if (m->q_rank > 0) keys.u32("attention.q_lora_rank", m->q_rank);
  if (c.ropes[0].scaling != RopeConfig::Scaling::kYarn) return;
  // The scale of scores is amplitude^2 / sqrt(key), for amplitude = 1 + multiplier * log(factor).
  const double amplitude = std::sqrt(m->scale * std::sqrt(key));
  keys.f32("rope.scaling.yarn_log_multiplier", (amplitude - 1) / std::log(c.ropes[0].factor));
}

void add_experts(const ModelConfig& c, Keys& keys) {
  const Moe* moe = first_moe(c);
  if (!moe) return;
  const Routing& r = moe->routing;
  const bool grouped = keys.is("glm4moe") || keys.is("deepseek2"), counts_shared = grouped || keys.is("ernie4_5-moe");
  keys.u32("expert_count", r.experts);
  keys.u32("expert_used_count", r.used);
  if (!keys.is("llama")) keys.u32("expert_feed_forward_length", moe->size);
  if (moe->shared_size > 0) {
    if (counts_shared) keys.u32("expert_shared_count", moe->shared_size / std::max(1, moe->size));
    keys.u32("expert_shared_feed_forward_length", moe->shared_size);
  }
  if (r.scores != Routing::Scores::kSoftmax)
    keys.u32("expert_gating_func", r.scores == Routing::Scores::kSigmoid ? 2 : 3);
  if (grouped) {
    keys.flag("expert_weights_norm", r.normalise);
    keys.f32("expert_weights_scale", r.scale);
    keys.u32("expert_group_count", r.groups);
    keys.u32("expert_group_used_count", r.groups_used);
  }
  if (!counts_shared) return;
  const auto has_experts = [](const LayerSpec& layer) { return std::holds_alternative<Moe>(layer.ffn); };
  const auto dense = std::ranges::find_if(c.layers, has_experts) - c.layers.begin();
  keys.u32("leading_dense_block_count", dense);
  if (keys.is("ernie4_5-moe")) keys.u32("interleave_moe_layer_step", 1);
}

bool near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::max(std::fabs(a), std::fabs(b)); }

// Up to the rounding of float32 numbers in the file.
bool same_ropes(const RopeConfig& a, const RopeConfig& b) {
  const bool by_length = a.scaling == RopeConfig::Scaling::kDynamic || b.scaling == RopeConfig::Scaling::kDynamic;
  if (by_length && a.scaling != b.scaling) return false;
  for (const int variant : {0, 1}) {
    if (variant > 0 && a.scaling != RopeConfig::Scaling::kLongRope) break;
    const RopeTable x = make_rope_table(a, variant), y = make_rope_table(b, variant);
    if (!near(x.amplitude, y.amplitude) || !std::ranges::equal(x.frequencies, y.frequencies, near)) return false;
  }
  return true;
}

}  // namespace

void add_settings(const ModelConfig& c, std::string_view architecture, GgufHeader& header) {
  Keys keys(architecture, header);
  keys.u32("block_count", static_cast<int64_t>(c.layers.size()));
  keys.u32("context_length", c.max_positions);
  keys.u32("embedding_length", c.hidden);
  keys.u32("vocab_size", c.vocab);
  std::vector<int32_t> sizes;
  for (const LayerSpec& layer : c.layers) {
    const auto* mlp = std::get_if<Mlp>(&layer.ffn);
    const auto* moe = std::get_if<Moe>(&layer.ffn);
    sizes.push_back(mlp ? mlp->size : moe ? moe->size : 0);
  }
  // Layers with experts have a size of their own.
  const auto dense = std::ranges::find_if(c.layers, [](const auto& l) { return std::holds_alternative<Mlp>(l.ffn); });
  if (const Moe* moe = first_moe(c); moe && dense != c.layers.end())
    sizes.assign(sizes.size(), std::get<Mlp>(dense->ffn).size);
  keys.per_layer("feed_forward_length", sizes);
  const Norm& norm = c.output_norm ? c.output_norm : c.embedding_norm;  // encoders have no norm at the end
  keys.f32(norm.kind == NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
           norm.epsilon);
  add_attention(c, keys);
  add_latent_attention(c, keys);
  add_rope(c, keys);
  add_experts(c, keys);
  if (c.logit_soft_cap != 0) keys.f32("final_logit_softcapping", c.logit_soft_cap);
  const LayerSpec& layer = c.layers[0];
  if (keys.is("granite")) {
    keys.f32("embedding_scale", c.embedding_scale);
    keys.f32("residual_scale", layer.mixer_scale);
    keys.f32("logit_scale", 1 / c.logit_scale);
  } else if (c.logit_scale != 1 || keys.is("cohere2")) {
    keys.f32("logit_scale", c.logit_scale);
  }
  if (c.pooled.pooling != Pooling::kNone)
    keys.u32("pooling_type", c.pooled.pooling == Pooling::kMean ? 1 : c.pooled.pooling == Pooling::kFirst ? 2 : 3);
  if (keys.is("gptneox") || keys.is("stablelm")) keys.flag("use_parallel_residual", layer.parallel);
}

std::vector<RopeTensor> rope_tensors(const ModelConfig& c) {
  if (c.ropes.empty()) return {};
  const RopeConfig& rope = c.ropes[0];
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (rope.scaling == RopeConfig::Scaling::kLongRope) {
    return {RopeTensor{"rope_factors_long.weight", floats(rope.long_factors)},
            RopeTensor{"rope_factors_short.weight", floats(rope.short_factors)}};
  }
  if (rope.scaling != RopeConfig::Scaling::kLlama3) return {};
  // Frequencies of wavelengths above `low` are divided by the factor, those below `high` stay, others are in between.
  std::vector<double> divisors;
  const double low = rope.original_positions / rope.low_frequency_factor,
               high = rope.original_positions / rope.high_frequency_factor;
  for (int i = 0; i < rope.dim; i += 2) {
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, static_cast<double>(i) / rope.dim);
    const double smooth = (rope.original_positions / wavelength - rope.low_frequency_factor) /
                          (rope.high_frequency_factor - rope.low_frequency_factor);
    divisors.push_back(wavelength < high  ? 1
                       : wavelength > low ? rope.factor
                                          : 1 / ((1 - smooth) / rope.factor + smooth));
  }
  return {RopeTensor{"rope_freqs.weight", floats(divisors)}};
}

std::string difference_between(const ModelConfig& wanted, const ModelConfig& written) {
  ModelConfig a = wanted;
  if (a.ropes.size() != written.ropes.size()) return "rotary positions";
  for (size_t i = 0; i < a.ropes.size(); ++i) {
    if (a.ropes[i].dim != written.ropes[i].dim || !same_ropes(a.ropes[i], written.ropes[i])) return "rotary positions";
  }
  if (a.hidden != written.hidden || a.vocab != written.vocab || a.layers.size() != written.layers.size())
    return "sizes";
  if (!near(a.logit_scale, written.logit_scale) || a.logit_soft_cap != written.logit_soft_cap)
    return "scaling of logits";
  if (a.tied_output != written.tied_output || a.has_logits != written.has_logits) return "output matrix";
  if (a.pooled.pooling != written.pooled.pooling || a.pooled.layers.size() != written.pooled.layers.size())
    return "pooling";
  a.ropes = written.ropes;
  a.architecture = written.architecture;
  for (size_t i = 0; i < a.layers.size(); ++i) {
    auto* mla = std::get_if<Mla>(&a.layers[i].mixer);
    const auto* other_mla = std::get_if<Mla>(&written.layers[i].mixer);
    if (mla && other_mla && near(mla->scale, other_mla->scale)) mla->scale = other_mla->scale;
    auto* x = std::get_if<Attention>(&a.layers[i].mixer);
    const auto* y = std::get_if<Attention>(&written.layers[i].mixer);
    if (!x || !y) continue;
    if (x->rope != y->rope) return "choice of layers with rotary positions";
    if (x->window != y->window) return "sliding windows";
    if (!near(x->scale, y->scale)) return "scale of attention";
    x->scale = y->scale;  // derived from numbers that the file holds as float32
    if (!x->alibi) x->alibi_scale = y->alibi_scale;
    const auto* moe = std::get_if<Moe>(&a.layers[i].ffn);
    const auto* other = std::get_if<Moe>(&written.layers[i].ffn);
    if ((moe == nullptr) != (other == nullptr)) return "choice of layers with experts";
    if (moe && moe->routing.normalise != other->routing.normalise) return "weights of experts";
  }
  if (a.output_norm.kind != written.output_norm.kind || a.output_norm.epsilon != written.output_norm.epsilon)
    return "norms";
  return config_identity(a) == config_identity(written) ? "" : "layers";
}

std::vector<std::string> llama_cpp_differences(const ModelConfig& c, std::string_view architecture) {
  std::vector<std::string> differences;
  const Attention* first = first_mixer(c);
  int window = 0;
  for (const LayerSpec& layer : c.layers) {
    if (const auto* a = std::get_if<Attention>(&layer.mixer)) window = std::max(window, a->window);
  }
  const auto is_any = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, architecture) != names.end();
  };
  // EXAONE 4: windows, and layers without rotary positions, in the model of 32 billion parameters only.
  const bool knows_windows =
      is_any({"gemma2", "gemma3", "cohere2", "olmo2"}) || (architecture == "exaone4" && c.layers.size() == 64);
  if (window > 0 && !knows_windows)
    differences.push_back(fmt::format("ignores the sliding window of {} tokens", window));
  if (first && first->clip != 0 && !is_any({"olmo", "mpt"}))
    differences.push_back(fmt::format("ignores the clipping of queries, keys and values at {}", first->clip));
  const RopeConfig usual;
  const bool is_yarn = !c.ropes.empty() && c.ropes[0].scaling == RopeConfig::Scaling::kYarn;
  if (is_yarn && architecture != "mistral3" &&
      (c.ropes[0].beta_fast != usual.beta_fast || c.ropes[0].beta_slow != usual.beta_slow))
    differences.push_back("ignores YaRN's beta_fast and beta_slow");
  const Moe* moe = first_moe(c);
  if (moe && moe->routing.groups > 1 && !moe->routing.group_by_two)
    differences.push_back("ranks groups of experts by their two best experts instead of the best");
  return differences;
}

}  // namespace quire
