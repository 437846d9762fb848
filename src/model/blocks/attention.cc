// Attention over the cached keys and values (arXiv 1706.03762, in groups of heads: 2305.13245), by online softmax
// (FlashAttention: 2205.14135).

#include "model/blocks/blocks.h"

namespace quire {
namespace {

HeadNorm head_norm(const Attention& a, const Norm& norm, const NormWeights& w, int heads, int dim) {
  return {.norm = view(norm, w),
          .groups = a.whole_norm ? 1 : heads,
          .weight_stride = a.norm_per_head ? static_cast<size_t>(dim) : 0};
}

}  // namespace

void attention_block(const Step& step, int layer, const Attention& a, const AttentionWeights& w, const NormView& norm,
                     const Target& target) {
  Operations& ops = step.ops;
  const int rows = step.rows, q_cols = a.heads * a.key_dim, out_cols = a.heads * a.value_dim;
  const bool stores = a.shares_cache < 0;
  const int k_cols = stores ? a.kv_heads * a.key_dim : 0, v_cols = stores ? a.kv_heads * a.value_dim : 0;
  const Rows& all = step.work.projections;
  const Rows q = all.columns(0, q_cols), k = all.columns(q_cols, k_cols), v = all.columns(q_cols + k_cols, v_cols),
             gate = all.columns(q_cols + k_cols + v_cols, a.gate ? out_cols : 0);

  const Inputs in =
      ops.prepare(step.work.x, norm, rows, {&w.q, stores ? &w.k : &w.q, stores ? &w.v : &w.q, a.gate ? &w.gate : &w.q});
  step.done(StepOp::kNormQuantize);
  const int own_heads = a.whole_norm ? 0 : a.kv_heads;  // a norm of all heads together needs them all
  Projection projections[4] = {{.w = &w.q, .y = q, .kv_heads = own_heads}};
  size_t count = 1;
  if (stores) {
    projections[count++] = {.w = &w.k, .y = k, .kv_heads = own_heads};
    projections[count++] = {.w = &w.v, .y = v, .kv_heads = own_heads};
  }
  if (a.gate) projections[count++] = {.w = &w.gate, .y = gate};
  ops.project(in, std::span(projections).first(count), rows);
  adapt(step, step.work.x, norm, {{&w.q, {q}}, {&w.k, {k}}, {&w.v, {v}}, {&w.gate, {gate}}});
  step.done(StepOp::kQkv);

  const int cached = step.first_layer + (stores ? layer : a.shares_cache);
  const std::vector<AttentionSpan>& spans = step.spans[static_cast<size_t>(step.cache.layout().group_of(cached))];
  PositionArgs position{.q = q,
                        .k = k,
                        .v = v,
                        .heads = a.heads,
                        .key_dim = a.key_dim,
                        .value_dim = a.value_dim,
                        .q_norm = head_norm(a, a.q_norm, w.q_norm, a.heads, a.key_dim),
                        .k_norm = head_norm(a, a.k_norm, w.k_norm, a.kv_heads, a.key_dim),
                        .v_norm = {.norm = view(a.v_norm, {}), .groups = a.kv_heads},
                        .norm_after_rope = a.norm_after_rope,
                        .clip = a.clip,
                        .q_scales = a.query_beta != 0 ? step.work.q_scales.data : nullptr,
                        .cache = step.cache,
                        .layer = cached};
  if (a.rope >= 0) {
    const RopeConfig& rope = step.config.ropes[static_cast<size_t>(a.rope)];
    position.kind = rope.kind;
    position.rope_dim = rope.dim;
    position.cos_sin = step.work.cos_sin[static_cast<size_t>(a.rope)];
  }
  ops.position_and_store(position, spans, rows);
  step.done(StepOp::kRopeStore);

  const Rows attended = step.work.attended.columns(0, out_cols);
  ops.attend({.q = q,
              .out = attended,
              .cache = step.cache,
              .layer = cached,
              .heads = a.heads,
              .scale = a.scale,
              .window = a.window,
              .causal = a.causal,
              .soft_cap = a.soft_cap,
              .slopes = a.alibi ? step.work.slopes.data() : nullptr,
              .sinks = a.sinks ? w.sinks.data() : nullptr},
             spans);
  if (a.gate) ops.multiply_gate(attended, gate, Nonlinearity::kSigmoid, rows);
  step.done(StepOp::kAttention);

  project(step, attended, view(a.inner, w.inner), w.o, target, StepOp::kO);
}

}  // namespace quire
