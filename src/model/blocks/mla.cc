// Multi-head latent attention with absorbed projections (DeepSeek-V2: arXiv 2405.04434, section 2.1).

#include "model/blocks/blocks.h"

namespace quire {

void mla_block(const Step& step, int layer, const Mla& m, const MlaWeights& w, const NormView& norm,
               const Target& target) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  const int rows = step.rows, key = m.key_dim(), head = m.nope_dim + m.rope_dim;
  const Rows queries = work.queries.columns(0, m.heads * head), query = work.projections.columns(0, m.heads * key),
             latent = work.projections.columns(m.heads * key, key), kv = latent.columns(0, m.kv_rank);

  // The latents: of keys and values with the shared rotary key, and of queries.
  const Linear& first_q = m.q_rank > 0 ? w.q_latent : w.q;
  const Rows q_latent = m.q_rank > 0 ? work.latent.columns(0, m.q_rank) : queries;
  const Inputs in = ops.prepare(work.x, norm, rows, {&first_q, &w.kv_latent});
  step.done(StepOp::kNormQuantize);
  const Projection down[] = {{.w = &first_q, .y = q_latent}, {.w = &w.kv_latent, .y = latent}};
  ops.project(in, down, rows);
  if (m.q_rank > 0) {
    const Inputs q_in = ops.prepare(q_latent, view(m.q_norm, w.q_norm), rows, {&w.q});
    ops.project(q_in, {.w = &w.q, .y = queries}, rows);
  }
  ops.normalize(kv, view(m.kv_norm, w.kv_norm), {kv}, rows);
  step.done(StepOp::kQkv);

  // Queries as the latent keys see them: each head through its key projection, and its rotary part behind that.
  ops.project_heads({.matrices = w.keys, .x = queries, .x_step = head, .y = query, .y_step = key}, rows);
  ops.copy_heads(queries,
                 {.heads = m.heads,
                  .count = m.rope_dim,
                  .from = m.nope_dim,
                  .from_stride = head,
                  .to = m.kv_rank,
                  .to_stride = key},
                 query, rows);
  step.done(StepOp::kQkv);

  const int cached = step.first_layer + layer;
  const std::vector<AttentionSpan>& spans = step.spans[static_cast<size_t>(step.cache.layout().group_of(cached))];
  const RopeConfig& rope = step.config.ropes[static_cast<size_t>(m.rope)];
  ops.position_and_store({.q = query,
                          .k = latent,
                          .v = kv,
                          .heads = m.heads,
                          .key_dim = key,
                          .value_dim = m.kv_rank,
                          .kind = rope.kind,
                          .rope_dim = rope.dim,
                          .rope_offset = m.kv_rank,
                          .cos_sin = work.cos_sin[static_cast<size_t>(m.rope)],
                          .cache = step.cache,
                          .layer = cached},
                         spans, rows);
  step.done(StepOp::kRopeStore);
  const Rows attended = work.attended.columns(0, m.heads * m.kv_rank);
  ops.attend({.q = query, .out = attended, .cache = step.cache, .layer = cached, .heads = m.heads, .scale = m.scale},
             spans);
  step.done(StepOp::kAttention);

  const Rows values = work.queries.columns(0, m.heads * m.value_dim);
  ops.project_heads({.matrices = w.values, .x = attended, .x_step = m.kv_rank, .y = values, .y_step = m.value_dim},
                    rows);
  step.done(StepOp::kO);
  project(step, values, {}, w.o, target, StepOp::kO);
}

}  // namespace quire
