#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/types.h"

namespace quire {
namespace {

// Throws if a value is outside its range.
class Checker {
 public:
  explicit Checker(std::string place) : place_(std::move(place)) {}

  void range(const char* what, int64_t value, int64_t lowest, int64_t highest) const {
    if (value < lowest || value > highest)
      throw invalid("{}: {} is {}; it must be {} to {}", place_, what, value, lowest, highest);
  }
  void positive(const char* what, double value) const {
    if (!(value > 0 && std::isfinite(value))) throw invalid("{}: {} is {}; it must be positive", place_, what, value);
  }
  void finite(const char* what, double value) const {
    if (!std::isfinite(value)) throw invalid("{}: {} is {}; it must be a number", place_, what, value);
  }
  void at_least_zero(const char* what, double value) const {
    if (!(value >= 0 && std::isfinite(value)))
      throw invalid("{}: {} is {}; it must be at least 0", place_, what, value);
  }
  void norm(const Norm& n) const {
    if (!(n.epsilon >= 0 && n.epsilon < 1))
      throw invalid("{}: the norm's epsilon is {}; it must be at least 0 and below 1", place_, n.epsilon);
  }
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

void check(const Checker& c, const RopeConfig& r) {
  using Scaling = RopeConfig::Scaling;
  if (r.dim % 2 != 0) throw invalid("{}: rotary size {} must be even", c.place(), r.dim);
  if (!(r.theta > 1 && std::isfinite(r.theta)))
    throw invalid("{}: rope theta is {}; it must be above 1", c.place(), r.theta);
  const bool stretched = r.scaling == Scaling::kLlama3 || r.scaling == Scaling::kYarn ||
                         r.scaling == Scaling::kLongRope || r.scaling == Scaling::kDynamic;
  if (stretched && !(r.original_positions > 0))
    throw invalid("{}: this rope scaling needs the original context length", c.place());
  c.positive("the rope scaling factor", r.factor);
  if (stretched && !(r.low_frequency_factor > 0 && r.high_frequency_factor > r.low_frequency_factor &&
                     r.beta_fast > 0 && r.beta_slow > 0)) {
    throw invalid("{}: the factors of rope scaling are out of range or out of order", c.place());
  }
  if (r.scaling == Scaling::kDynamic && r.dim < 4)
    throw invalid("{}: dynamic rope scaling needs a rotary size of at least 4, not {}", c.place(), r.dim);
  const auto pairs = static_cast<size_t>(r.dim / 2);
  if (!r.frequency_divisors.empty() && r.frequency_divisors.size() != pairs)
    throw invalid("{}: {} rope frequency factors, expected {}", c.place(), r.frequency_divisors.size(), pairs);
  for (const float divisor : r.frequency_divisors) c.positive("a rope frequency factor", divisor);
  if (r.scaling != Scaling::kLongRope) return;
  for (const auto* factors : {&r.short_factors, &r.long_factors}) {
    if (factors->size() != pairs)
      throw invalid("{}: {} longrope factors, expected {}", c.place(), factors->size(), pairs);
    for (const double factor : *factors) c.positive("a longrope factor", factor);
  }
}

void check(const Checker& c, const Attention& a, const ModelConfig& config, size_t index) {
  c.range("the number of attention heads", a.heads, 1, 1024);
  c.range("the number of KV heads", a.kv_heads, 1, a.heads);
  c.range("the head size", a.key_dim, 2, kMaxHeadDim);
  c.range("the size of a head's values", a.value_dim, 2, kMaxHeadDim);
  if (a.heads % a.kv_heads != 0)
    throw invalid("{}: {} attention heads are not a multiple of {} KV heads", c.place(), a.heads, a.kv_heads);
  if (a.rope >= 0) {
    const int dim = config.ropes[static_cast<size_t>(a.rope)].dim;
    c.range("the rotary size", dim, 0, a.key_dim);
    if (a.key_dim % 2 != 0)
      throw invalid("{}: head size {} and rotary size {} must be even", c.place(), a.key_dim, dim);
  }
  c.positive("the attention scale", a.scale);
  c.at_least_zero("the soft cap of scores", a.soft_cap);
  c.at_least_zero("the bound of queries, keys and values", a.clip);
  c.finite("the scale of queries by position", a.query_beta);
  if (a.query_beta != 0) c.range("the context length that scales queries", a.query_positions, 1, int64_t{1} << 30);
  c.range("the sliding window", a.window, 0, int64_t{1} << 30);
  for (const Norm* n : {&a.q_norm, &a.k_norm, &a.v_norm, &a.inner}) c.norm(*n);
  if (a.shares_cache < 0) return;
  if (std::cmp_greater_equal(a.shares_cache, index))
    throw invalid("{}: it shares the cache of layer {}, which does not come before it", c.place(), a.shares_cache);
  const auto* other = std::get_if<Attention>(&config.layers[static_cast<size_t>(a.shares_cache)].mixer);
  if (!other || other->kv_heads != a.kv_heads || other->key_dim != a.key_dim || other->window != a.window)
    throw invalid("{}: it shares the cache of layer {}, which has another shape", c.place(), a.shares_cache);
}

void check(const Checker& c, const Mla& m, const ModelConfig& config, size_t) {
  c.range("the number of attention heads", m.heads, 1, 1024);
  c.range("the rank of queries", m.q_rank, 0, 1 << 17);
  c.range("the rank of keys and values", m.kv_rank, 1, kMaxHeadDim);
  c.range("the rank of keys and values with the rotary size", m.key_dim(), 2, kMaxHeadDim);
  c.range("the size of a head's keys without a position", m.nope_dim, 1, 1 << 12);
  c.range("the size of a head's values", m.value_dim, 1, 1 << 12);
  c.range("the rotary size", config.ropes[static_cast<size_t>(m.rope)].dim, m.rope_dim, m.rope_dim);
  c.positive("the attention scale", m.scale);
  for (const Norm* n : {&m.q_norm, &m.kv_norm}) c.norm(*n);
}

void check_convolution(const Checker& c, const StateLayout& state) {
  c.range("the channels of the convolution", state.channels, 1, 1 << 18);
  c.range("the width of the convolution", state.width, 2, kMaxConvWidth);
}
void check(const Checker& c, const ShortConv& m, const ModelConfig&, size_t) { check_convolution(c, m.state()); }

void check(const Checker& c, const GatedDelta& m, const ModelConfig&, size_t) {
  c.range("the number of key heads", m.key_heads, 1, 1024);
  c.range("the number of value heads", m.value_heads, m.key_heads, 1024);
  c.range("the size of a key head", m.key_dim, 1, kMaxKeyDim);
  c.range("the size of a value head", m.value_dim, 1, kMaxKeyDim);
  if (m.value_heads % m.key_heads != 0)
    throw invalid("{}: {} value heads are not a multiple of {} key heads", c.place(), m.value_heads, m.key_heads);
  check_convolution(c, m.state());
  c.norm(m.norm);
}

void check(const Checker& c, const Mamba2& m, const ModelConfig&, size_t) {
  c.range("the number of Mamba heads", m.heads, 1, 4096);
  c.range("the size of a Mamba head", m.head_dim, 1, 1024);
  c.range("the state size", m.state_dim, 1, 1024);
  for (const auto& [what, groups] :
       {std::pair{"groups of Mamba heads", m.groups}, {"groups of the norm", m.norm_groups}}) {
    c.range(fmt::format("the number of {}", what).c_str(), groups, 1, m.heads);
    if (m.heads % groups != 0)
      throw invalid("{}: {} Mamba heads cannot be cut into {} {}", c.place(), m.heads, groups, what);
  }
  check_convolution(c, m.state());
  for (const float scale : m.scales) c.finite("a scale of Mamba's projection", scale);
  c.norm(m.norm);
}

void check(const Checker& c, const Moe& m) {
  c.range("the number of experts", m.routing.experts, 1, 4096);
  c.range("the number of experts per token", m.routing.used, 1, m.routing.experts);
  c.range("the size of an expert", m.size, 1, 1 << 20);
  c.range("the size of the shared experts", m.shared_size, 0, 1 << 20);
  c.range("the number of expert groups", m.routing.groups, 1, m.routing.experts);
  c.range("the number of expert groups per token", m.routing.groups_used, 1, m.routing.groups);
  if (m.routing.experts % m.routing.groups != 0)
    throw invalid("{}: {} experts cannot be cut into {} groups", c.place(), m.routing.experts, m.routing.groups);
  if (m.routing.used > m.routing.experts / m.routing.groups * m.routing.groups_used)
    throw invalid("{}: {} experts per token, but the chosen groups have {}", c.place(), m.routing.used,
                  m.routing.experts / m.routing.groups * m.routing.groups_used);
  c.finite("the scale of the experts' weights", m.routing.scale);
  c.positive("the scale of the router's scores", m.router_scale);
  for (const Norm* n : {&m.router_in, &m.shared_in, &m.shared_out, &m.experts_out}) c.norm(*n);
  if (m.nonlinearity == Nonlinearity::kClampedSwiglu) c.positive("the bound of the experts' gates", m.limit);
}

std::string norm_text(const Norm& n) { return fmt::format("{}/{}", static_cast<int>(n.kind), n.epsilon); }

std::string identity(const Attention& a) {
  return fmt::format(
      " attention {} {} {} {} rope {} window {} {} scale {} {} {} flags {}{}{}{} slopes {} {} query {} {} norms {} {} "
      "{} {} {}{}{}",
      a.heads, a.kv_heads, a.key_dim, a.value_dim, a.rope, a.window, a.shares_cache, a.scale, a.soft_cap, a.clip,
      int{a.causal}, int{a.sinks}, int{a.alibi}, int{a.gate}, a.alibi_max, a.alibi_scale, a.query_beta,
      a.query_positions, norm_text(a.q_norm), norm_text(a.k_norm), norm_text(a.v_norm), norm_text(a.inner),
      int{a.whole_norm}, int{a.norm_per_head}, int{a.norm_after_rope});
}
std::string identity(const ShortConv& m) { return fmt::format(" conv {} {}", m.channels, m.width); }
std::string identity(const GatedDelta& m) {
  return fmt::format(" delta {} {} {} {} {} {} {}", m.key_heads, m.value_heads, m.key_dim, m.value_dim, m.width,
                     m.interleaved, norm_text(m.norm));
}
std::string identity(const Mamba2& m) {
  return fmt::format(" mamba2 {} {} {} {} {} {} {} {}", m.heads, m.head_dim, m.state_dim, m.groups, m.width,
                     norm_text(m.norm), m.norm_groups, fmt::join(m.scales, " "));
}

std::string identity(const Mla& m) {
  return fmt::format(" mla {} {} {} {} {} {} rope {} scale {} norms {} {}", m.heads, m.q_rank, m.kv_rank, m.nope_dim,
                     m.rope_dim, m.value_dim, m.rope, m.scale, norm_text(m.q_norm), norm_text(m.kv_norm));
}

LayerCache cache_of(const Mla& m) {
  return {.kind = LayerCache::Kind::kKeysValues, .kv_heads = 1, .key_dim = m.key_dim(), .value_dim = m.kv_rank};
}
LayerCache cache_of(const Attention& a) {
  if (a.shares_cache >= 0) return {};
  return {.kind = LayerCache::Kind::kKeysValues,
          .kv_heads = a.kv_heads,
          .key_dim = a.key_dim,
          .value_dim = a.value_dim,
          .window = a.window};
}
template <class Recurrent>
LayerCache cache_of(const Recurrent& mixer) {
  return {.kind = LayerCache::Kind::kState, .state_bytes = mixer.state().bytes()};
}

}  // namespace

std::optional<AttentionShape> attention_shape(const LayerSpec& layer) {
  if (const auto* a = std::get_if<Attention>(&layer.mixer))
    return AttentionShape{a->heads, a->kv_heads, a->key_dim, a->value_dim, a->window};
  if (const auto* m = std::get_if<Mla>(&layer.mixer)) return AttentionShape{m->heads, 1, m->key_dim(), m->kv_rank, 0};
  return std::nullopt;
}

std::optional<AttentionShape> first_attention(const ModelConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    if (const auto shape = attention_shape(layer)) return shape;
  }
  return std::nullopt;
}

bool is_bidirectional(const ModelConfig& config) {
  return std::ranges::any_of(config.layers, [](const LayerSpec& layer) {
    const auto* a = std::get_if<Attention>(&layer.mixer);
    return a && !a->causal;
  });
}

int pooled_size(const ModelConfig& config) {
  return config.pooled.layers.empty() ? config.hidden : config.pooled.layers.back().size;
}

int widest_ffn(const ModelConfig& config) {
  int widest = 0;
  for (const LayerSpec& layer : config.layers) {
    if (const auto* mlp = std::get_if<Mlp>(&layer.ffn)) widest = std::max(widest, mlp->size);
    if (const auto* moe = std::get_if<Moe>(&layer.ffn)) widest = std::max({widest, moe->size, moe->shared_size});
  }
  return widest;
}

bool can_exit_after(const ModelConfig& config, int layers) {
  return layers >= 1 && std::cmp_less_equal(layers, config.layers.size()) &&
         !config.layers[static_cast<size_t>(layers) - 1].joined;
}

bool takes_picked_tokens(const ModelConfig& config) { return config.per_layer_dim == 0 && config.segments == 0; }

CacheLayout cache_layout(const ModelConfig& config, KvType type, std::span<const ModelConfig* const> drafters) {
  std::vector<LayerCache> layers;
  const auto add = [&layers](const ModelConfig& model) {
    for (const LayerSpec& layer : model.layers)
      layers.push_back(std::visit([](const auto& mixer) { return cache_of(mixer); }, layer.mixer));
  };
  add(config);
  for (const ModelConfig* drafter : drafters) add(*drafter);
  return {type, std::move(layers)};
}

std::string config_identity(const ModelConfig& c) {
  std::string text = fmt::format("{} hidden {} embedding {} {} {} norm {}", c.architecture, c.hidden, c.embedding_scale,
                                 c.learned_positions, c.per_layer_dim, norm_text(c.embedding_norm));
  text += fmt::format(" segments {}", c.segments);
  text += fmt::format(" altup {} {} {}", c.altup.streams, c.altup.active, c.altup.scales_output);
  for (const RopeConfig& rope : c.ropes) {
    const bool is_dynamic = rope.scaling == RopeConfig::Scaling::kDynamic;  // a variant for every length of a prompt
    if (is_dynamic) text += fmt::format(" dynamic rope {} {}", rope.factor, rope.original_positions);
    for (const int variant : {0, is_dynamic ? 0 : 1}) {
      const RopeTable table = make_rope_table(rope, variant);
      text += fmt::format(" rope {} {} {}", static_cast<int>(rope.kind), table.amplitude,
                          fmt::join(table.frequencies, ","));
    }
  }
  for (const LayerSpec& l : c.layers) {
    text += fmt::format("; laurel {} {}", l.laurel_rank, l.output_scale);
    text += fmt::format("; {} {} {} {} {} {} {} {}", norm_text(l.mixer_in), norm_text(l.mixer_out), norm_text(l.ffn_in),
                        norm_text(l.ffn_out), l.parallel, l.norm_sums, l.shared_norm, l.mixer_scale);
    text += fmt::format(" {} {}", l.ffn_scale, l.joined);
    text += std::visit([](const auto& mixer) { return identity(mixer); }, l.mixer);
    if (const auto* m = std::get_if<Mlp>(&l.ffn)) {
      text += fmt::format(" mlp {} {} {} {} {}", m->size, m->sparsity, static_cast<int>(m->nonlinearity), m->gated,
                          norm_text(m->inner));
      text += fmt::format(" {}", m->gate_scale);
    }
    if (const auto* m = std::get_if<Moe>(&l.ffn)) {
      text += fmt::format(" moe {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", m->routing.experts, m->routing.used,
                          m->size, static_cast<int>(m->nonlinearity), m->alpha, m->limit,
                          static_cast<int>(m->routing.scores), m->routing.normalise, m->routing.scale, m->correction,
                          m->routing.groups, m->routing.groups_used, m->routing.group_by_two, m->shared_size,
                          m->shared_gate, m->gated);
      text +=
          fmt::format(" {} {} {} {} {} {} {}", m->routing.nearness, norm_text(m->router_in), norm_text(m->shared_in),
                      norm_text(m->shared_out), norm_text(m->experts_out), m->router_scale, m->expert_scales);
    }
  }
  return text;
}

void validate(const ModelConfig& config, const std::string& file) {
  const Checker c(file);
  c.range("the number of layers", static_cast<int64_t>(config.layers.size()), 1, 1024);
  c.range("the number of layers for multi-token prediction", config.predicting_layers, 0, 1024);
  c.range("the hidden size", config.hidden, 1, 1 << 17);
  c.range("the vocabulary size", config.vocab, 1, 1 << 20);
  c.range("the number of streams", config.altup.streams, 0, 16);
  c.range("the active stream", config.altup.active, 0, std::max(0, config.altup.streams - 1));
  c.range("the size of per-layer embeddings", config.per_layer_dim, 0, 1 << 14);
  c.range("the context length", config.max_positions, 1, 1 << 27);
  c.positive("the scale of embeddings", config.embedding_scale);
  c.finite("the scale of logits", config.logit_scale);
  c.at_least_zero("the soft cap of logits", config.logit_soft_cap);
  c.norm(config.output_norm);
  c.range("the number of segments", config.segments, 0, 1 << 16);
  for (const PooledLayer& layer : config.pooled.layers)
    c.range("the results of a linear after pooling", layer.size, 1, 1 << 17);
  for (const RopeConfig& rope : config.ropes) check(c, rope);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    // Most models repeat one layer: a message about the first need not name it.
    const Checker of_layer(i == 0 ? file : fmt::format("{}: layer {}", file, i));
    std::visit([&](const auto& mixer) { check(of_layer, mixer, config, i); }, layer.mixer);
    for (const Norm* n : {&layer.mixer_in, &layer.mixer_out, &layer.ffn_in, &layer.ffn_out}) of_layer.norm(*n);
    for (const float scale : {layer.mixer_scale, layer.ffn_scale}) of_layer.finite("the scale of residuals", scale);
    // The result waits where norms of results and parallel branches have theirs.
    const bool joins = i > 0 && config.layers[i - 1].joined;
    assert(!layer.joined ||
           (i + 1 < config.layers.size() && !layer.mixer_out && std::holds_alternative<std::monostate>(layer.ffn)));
    assert(!joins || !(layer.joined || layer.parallel || layer.mixer_out));
    if (const auto* mlp = std::get_if<Mlp>(&layer.ffn)) of_layer.range("the feed-forward size", mlp->size, 1, 1 << 20);
    if (const auto* moe = std::get_if<Moe>(&layer.ffn)) check(of_layer, *moe);
  }
}

}  // namespace quire
