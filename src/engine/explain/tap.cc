#include "engine/explain/tap.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

namespace quire {
namespace {

// The linear with which the layer's mixer begins.
const Linear& first_linear(const LayerSpec& spec, const LayerWeights& w) {
  if (const auto* m = std::get_if<Mla>(&spec.mixer)) return m->q_rank > 0 ? w.mla.q_latent : w.mla.q;
  if (std::holds_alternative<ShortConv>(spec.mixer)) return w.short_conv.in;
  if (std::holds_alternative<GatedDelta>(spec.mixer)) return w.gated_delta.q;
  if (std::holds_alternative<Mamba2>(spec.mixer)) return w.mamba2.in;
  return w.attention.q;
}

double length(std::span<const float> x) {
  return std::sqrt(std::transform_reduce(x.begin(), x.end(), 0.0, std::plus<>(), [](double v) { return v * v; }));
}

}  // namespace

TapOperations::TapOperations(std::unique_ptr<Operations> inner, Backend& backend, const ModelConfig& config,
                             const Weights& weights, int tokens, Explanation& to)
    : ForwardingOperations(std::move(inner)),
      backend_(backend),
      weights_(weights),
      layer_weights_(weights.layers[static_cast<size_t>(to.layer)]),
      is_parallel_(config.layers[static_cast<size_t>(to.layer)].parallel),
      tokens_(tokens),
      to_(to),
      memory_(backend, memory_bytes(config)),
      scratch_{reinterpret_cast<float*>(memory_.data()), scratch_cols(config), row_stride(scratch_cols(config))} {
  for (size_t i = 0; i < config.layers.size(); ++i)
    begins_[&first_linear(config.layers[i], weights.layers[i])] = static_cast<int>(i);
  const LayerSpec& spec = config.layers[static_cast<size_t>(to.layer)];
  const auto shape = attention_shape(spec);
  if (!shape) return;
  const auto* attention = std::get_if<Attention>(&spec.mixer);
  cached_ = attention && attention->shares_cache >= 0 ? attention->shares_cache : to.layer;
  key_dim_ = shape->key_dim;
  value_dim_ = shape->value_dim;
}

int TapOperations::scratch_cols(const ModelConfig& config) {
  int cols = std::max(config.hidden, widest_ffn(config));
  for (const LayerSpec& layer : config.layers) {
    if (const auto shape = attention_shape(layer)) cols = std::max(cols, shape->kv_heads * shape->key_dim);
  }
  return cols;
}

size_t TapOperations::memory_bytes(const ModelConfig& config) {
  return ExplainRequest::kMostTokens * row_stride(scratch_cols(config)) * sizeof(float);
}

std::vector<float> TapOperations::numbers(const Rows& x, int row, int first, int count) {
  inner().finish();
  HostCopy copy;
  const size_t size = static_cast<size_t>(count < 0 ? x.cols : count);
  const auto values = view_floats(backend_, x.row(row) + first, size, copy);
  return {values.begin(), values.end()};
}

void TapOperations::put(std::string_view place, std::vector<float> values) {
  to_.path.push_back({place, std::move(values)});
}

std::vector<float> TapOperations::normed(const Rows& x, const NormView& norm, int row) {
  if (norm.kind == NormKind::kNone) return numbers(x, row);
  const Rows to = scratch_.columns(0, x.cols);
  inner().normalize(x.from(row), norm, {to}, 1);
  return numbers(to, 0);
}

void TapOperations::embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) {
  inner().embed(matrix, ids, scale, x);
  if (residual_) return;  // a second table, of embeddings per layer
  residual_ = x.data;
  for (int row = 0; row < tokens_; ++row) to_.embeddings.push_back(numbers(x, row));
  put("embedding", to_.embeddings.back());
}

// The decoder gathers rows of the residual stream after the last layer.
void TapOperations::gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) {
  inner().gather(x, rows, to);
  if (x.data != residual_ || layer_ < 0) return;
  std::vector<float> last = numbers(x, tokens_ - 1);
  to_.residual_norms.push_back(length(last));
  if (layer_ == to_.layer) put("layer_output", std::move(last));
  layer_ = -1;
}

void TapOperations::begin_layer(int layer, const Rows& x, const NormView& norm, int rows) {
  std::vector<float> last = numbers(x, rows - 1);
  to_.residual_norms.push_back(length(last));
  if (layer_ == to_.layer) put("layer_output", last);
  layer_ = layer;
  if (layer != to_.layer) return;
  put("layer_input", std::move(last));
  put("mixer_input", normed(x, norm, rows - 1));
}

Inputs TapOperations::prepare(const Rows& x, const NormView& norm, int rows,
                              std::initializer_list<const Linear*> linears, std::optional<Activations> as) {
  const LayerWeights& w = layer_weights_;
  const auto reads = [&](const Linear& linear) { return std::ranges::find(linears, &linear) != linears.end(); };
  if (const auto begun = begins_.find(*linears.begin()); begun != begins_.end()) {
    begin_layer(begun->second, x, norm, rows);
  } else if (reads(weights_.output)) {
    put("final_hidden", normed(x, norm, rows - 1));
  } else if (layer_ == to_.layer) {
    if (reads(w.mlp.up) || reads(w.moe.router)) {
      if (x.data == residual_ && !is_parallel_) put("after_mixer", numbers(x, rows - 1));
      put("ffn_input", normed(x, norm, rows - 1));
    } else if (reads(w.mlp.down) || reads(w.moe.shared.down)) {
      put("activation", numbers(x, rows - 1));
    }
  }
  return inner().prepare(x, norm, rows, linears, as);
}

void TapOperations::project(const Inputs& x, std::span<const Projection> list, int rows) {
  inner().project(x, list, rows);
  if (layer_ != to_.layer) return;
  const LayerWeights& w = layer_weights_;
  const auto head_of = [&](const Projection& p, int head, int dim) { return numbers(p.y, rows - 1, head * dim, dim); };
  for (const Projection& p : list) {
    if (p.w == &w.attention.q) put("query", head_of(p, to_.head, key_dim_));
    if (p.w == &w.attention.k) put("key", head_of(p, to_.kv_head, key_dim_));
    if (p.w == &w.attention.v) put("value", head_of(p, to_.kv_head, value_dim_));
    if (p.w == &w.moe.router) put("router", numbers(p.y.columns(0, p.w->weight.rows), rows - 1));
    for (const MlpWeights* mlp : {&w.mlp, &w.moe.shared}) {
      if (p.w != &mlp->gate && p.w != &mlp->up) continue;
      // The product of gate and up is computed at once, so here they are computed one by one for the last row.
      const auto alone = [&](std::string_view place, const Linear& linear) {
        const Rows to = scratch_.columns(0, linear.weight.rows);
        const Projection one{.w = &linear, .y = to, .as = p.as};
        inner().project(x.from_row(rows - 1), {&one, 1}, 1);
        put(place, numbers(to, 0));
      };
      alone(p.w == &mlp->gate ? "gate" : "up", *p.w);
      if (p.up) alone("up", *p.up);
    }
  }
}

// Keys as attention sees them. What args.k holds afterwards, backends may choose; of queries it is what attention reads, so
// the keys are positioned once more, as queries that are stored nowhere.
void TapOperations::keep_keys(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) {
  const Rows keys = scratch_.columns(0, args.k.cols);
  inner().copy(args.k, keys, rows);
  PositionArgs as_query = args;
  as_query.q = keys;
  as_query.k = as_query.v = {};
  as_query.heads = args.k.cols / args.key_dim;
  as_query.q_norm = args.k_norm;
  as_query.k_norm = as_query.v_norm = {};
  as_query.q_scales = nullptr;
  inner().position_and_store(as_query, spans, rows);
  for (int row = 0; row < rows; ++row) {
    to_.keys.push_back(numbers(keys, row, to_.kv_head * key_dim_, key_dim_));
    to_.values.push_back(numbers(args.v, row, to_.kv_head * value_dim_, value_dim_));
  }
}

void TapOperations::position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) {
  if (args.layer == cached_ && args.k.cols > 0) keep_keys(args, spans, rows);
  inner().position_and_store(args, spans, rows);
  if (cached_ < 0 || layer_ != to_.layer) return;
  query_ = numbers(args.q, rows - 1, to_.head * key_dim_, key_dim_);
  put("query_positioned", query_);
  put("key_positioned", to_.keys.back());
}

void TapOperations::attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) {
  inner().attend(spec, spans);
  if (cached_ < 0 || layer_ != to_.layer) return;
  score(spec);
  put("attended", numbers(spec.out, tokens_ - 1, to_.head * value_dim_, value_dim_));
}

// softmax(scale * q k^T) of the last token: it sees all others, so `causal` makes no difference.
void TapOperations::score(const AttentionSpec& spec) {
  const auto of_head = [&](const float* numbers_of_heads) {
    HostCopy copy;
    return view_floats(backend_, const_cast<float*>(numbers_of_heads) + to_.head, 1, copy)[0];
  };
  inner().finish();
  const int last = tokens_ - 1;
  const float slope = spec.slopes ? of_head(spec.slopes) : 0;
  const auto sees = [&](int token) { return spec.window == 0 || last - token < spec.window; };
  float top = -std::numeric_limits<float>::infinity();
  for (int token = 0; token < tokens_; ++token) {
    const std::vector<float>& key = to_.keys[static_cast<size_t>(token)];
    float score = spec.scale * std::inner_product(query_.begin(), query_.end(), key.begin(), 0.0f);
    if (spec.soft_cap > 0) score = spec.soft_cap * std::tanh(score / spec.soft_cap);
    score -= slope * static_cast<float>(last - token);
    to_.scores.push_back(sees(token) ? score : 0);
    if (sees(token)) top = std::max(top, score);
  }
  if (spec.sinks) top = std::max(top, of_head(spec.sinks));
  for (int token = 0; token < tokens_; ++token)
    to_.weights.push_back(sees(token) ? std::exp(to_.scores[static_cast<size_t>(token)] - top) : 0);
  if (spec.sinks) to_.sink = std::exp(of_head(spec.sinks) - top);
  const float sum = std::reduce(to_.weights.begin(), to_.weights.end(), to_.sink);
  for (float& weight : to_.weights) weight /= sum;
  to_.sink /= sum;
}

}  // namespace quire
