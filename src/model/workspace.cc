#include "model/workspace.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace quire {
namespace {

struct Widths {
  int projections = 0, attended = 0, inner = 0, scores = 0, expert_inner = 0, inputs = 0;
  int experts = 0, used = 0;       // the most of any layer
  int heads = 0, head_inputs = 0;  // for linears per head
  int queries = 0, latent = 0;
  int up = 0;
  int pooled = 0;
  int shared = 0;
};

// adapted: adapters may change the linears.
Widths widths_of(const ModelConfig& c, bool adapted) {
  Widths w;
  w.inputs = c.hidden;
  const auto take = [](int& widest, int cols) { widest = std::max(widest, cols); };
  for (const LayerSpec& layer : c.layers) {
    if (const auto* a = std::get_if<Attention>(&layer.mixer)) {
      const int q = a->heads * a->key_dim, kv = a->kv_heads * (a->key_dim + a->value_dim),
                out = a->heads * a->value_dim;
      take(w.projections, q + kv + (a->gate ? out : 0));
      take(w.attended, out);
      take(w.inputs, out);
    }
    if (const auto* m = std::get_if<Mla>(&layer.mixer)) {
      take(w.projections, (m->heads + 1) * m->key_dim());
      take(w.attended, m->heads * m->kv_rank);
      take(w.queries, m->heads * std::max(m->nope_dim + m->rope_dim, m->value_dim));
      take(w.latent, m->q_rank);
      take(w.heads, m->heads);
      take(w.head_inputs, std::max(m->nope_dim, m->kv_rank));
      take(w.inputs, std::max(m->q_rank, m->heads * m->value_dim));
    }
    if (const auto* m = std::get_if<Mlp>(&layer.ffn)) {
      take(w.inner, m->size);
      take(w.up, m->changes_gates() || c.input_forms.transforms || adapted ? m->size : 0);
    }
    take(w.inner, layer.laurel_rank);
    if (const auto* m = std::get_if<ShortConv>(&layer.mixer)) {
      take(w.projections, 3 * m->channels);
      take(w.inputs, m->channels);
    }
    if (const auto* m = std::get_if<GatedDelta>(&layer.mixer)) {
      take(w.projections, m->channels() + m->values() + 2 * m->value_heads);
      take(w.inputs, m->values());
    }
    if (const auto* m = std::get_if<Mamba2>(&layer.mixer)) {
      take(w.projections, m->inner() + m->channels() + m->heads);
      take(w.inputs, m->inner());
    }
    if (const auto* m = std::get_if<Moe>(&layer.ffn)) {
      take(w.inner, m->shared_size);
      take(w.up, c.input_forms.transforms ? m->shared_size : 0);
      take(w.expert_inner, m->size);
      take(w.scores, 2 * m->routing.experts);
      take(w.experts, m->routing.experts);
      take(w.used, m->routing.used);
      take(w.shared, m->shared_gate || m->shared_out ? c.hidden : 0);
    }
  }
  take(w.pooled, c.hidden);
  for (const PooledLayer& layer : c.pooled.layers) take(w.pooled, layer.size);
  take(w.inputs, w.pooled);
  take(w.inner, c.per_layer_dim);
  take(w.inputs, w.inner);
  if (c.joined_input) take(w.inputs, 2 * c.hidden);
  return w;
}

// The slopes of ALiBi (arXiv 2108.12409): 2^(-8i/n) for n heads, a power of two; the heads beyond take every other slope
// of twice as many.
std::vector<float> alibi_slopes(const Attention& a) {
  int power = 1;
  while (2 * power <= a.heads) power *= 2;
  std::vector<float> slopes;
  const auto add = [&](double exponent) {
    slopes.push_back(a.alibi_scale * static_cast<float>(std::exp2(-exponent * a.alibi_max)));
  };
  for (int i = 1; i <= power; ++i) add(double{1} * i / power);
  for (int i = 1; static_cast<int>(slopes.size()) < a.heads; i += 2) add(0.5 * i / power);
  return slopes;
}

}  // namespace

size_t Workspace::carve(const ModelConfig& c, const DecoderLimits& l, std::byte* memory) {
  size_t bytes = 0;
  const auto part = [&](size_t size) {
    const size_t begin = bytes;
    bytes += (size + 63) / 64 * 64;
    return memory ? memory + begin : nullptr;
  };
  const auto rows_of = [&](int rows, int cols, bool dense = false) -> Rows {
    if (cols == 0) return {};
    const size_t stride = dense ? static_cast<size_t>(cols) : row_stride(cols);
    return {reinterpret_cast<float*>(part(static_cast<size_t>(rows) * stride * sizeof(float))), cols, stride};
  };
  const Widths w = widths_of(c, l.max_rank > 0);
  const int rows = l.max_rows;
  x = rows_of(rows, c.hidden);
  branch = rows_of(rows, c.hidden);
  projections = rows_of(rows, w.projections);
  attended = rows_of(rows, w.attended);
  inner = rows_of(rows, w.inner);
  queries = rows_of(rows, w.queries);
  latent = rows_of(rows, w.latent);
  per_layer = rows_of(rows, c.per_layer_dim * static_cast<int>(c.layers.size()));
  streams.clear();
  predicted.clear();
  for (int i = 0; i < c.altup.streams; ++i) {
    streams.push_back(rows_of(rows, c.hidden));
    predicted.push_back(rows_of(rows, c.hidden));
  }
  coefficients = rows_of(rows, c.altup.streams * (c.altup.streams + 1));
  up = rows_of(rows, w.up);
  low_rank = rows_of(kMostChanged * rows, l.max_rank);
  undecomposed = rows_of(l.max_rank > 0 ? rows : 0, c.hidden);
  per_layer_table = rows_of(rows, per_layer.cols);
  last = rows_of(l.max_logits, c.hidden);
  logits = rows_of(l.max_logits, c.has_logits ? c.vocab : 0, true);
  hidden = rows_of(l.max_hidden, c.hidden);
  pooled = rows_of(2, w.pooled);
  if (w.experts > 0 || c.altup.streams > 0) normed = rows_of(rows, c.hidden);
  scores = rows_of(rows, w.scores);
  shared = rows_of(rows, w.shared);
  q_scales = rows_of(1, std::ranges::any_of(c.layers, scales_queries) ? rows : 0);
  cos_sin.clear();
  for (const RopeConfig& rope : c.ropes) cos_sin.push_back(rows_of(rows, rope.dim, true));
  updates.clear();
  for (const LayerSpec& layer : c.layers) updates.push_back(rows_of(l.max_drafted, update_size(layer.mixer)));
  return bytes;
}

Workspace::Workspace(Backend& backend, const ModelConfig& c, const DecoderLimits& l)
    : memory_(backend, memory_bytes(c, l)) {
  carve(c, l, memory_.data());
  ids.reserve(static_cast<size_t>(std::max(l.max_rows, l.max_logits)));
  for (const LayerSpec& layer : c.layers) {  // all layers have the same heads
    const auto* a = std::get_if<Attention>(&layer.mixer);
    if (a && a->alibi && slopes.empty()) slopes = Vector(backend, alibi_slopes(*a));
  }
}

void Workspace::begin_at(int row, int drafted) {
  x = x.from(row - row_);
  for (Rows& kept : updates) kept = kept.from(drafted - drafted_);
  row_ = row;
  drafted_ = drafted;
}

size_t Workspace::memory_bytes(const ModelConfig& c, const DecoderLimits& l) {
  return Workspace().carve(c, l, nullptr);
}

OperationLimits operation_limits(const ModelConfig& c, const DecoderLimits& l) {
  const Widths w = widths_of(c, l.max_rank > 0);
  OperationLimits limits{.max_rows = l.max_rows,
                         .max_positions = l.max_positions,
                         .max_picked = l.max_logits,
                         .inputs = {{std::max(l.max_rows, l.max_logits), w.inputs}},
                         .forms = c.input_forms,
                         .heads = {w.heads, w.head_inputs},
                         .attention = {},
                         .experts = {w.experts, w.used, c.hidden, w.expert_inner}};
  for (const LayerSpec& layer : c.layers) {
    if (const auto a = attention_shape(layer)) limits.attention.push_back({a->heads, a->kv_heads, a->value_dim});
  }
  if (l.max_rank > 0)
    for (const auto& kept : low_rank_inputs(l.max_rows, l.max_rank)) limits.inputs.push_back(kept);
  return limits;
}

}  // namespace quire
