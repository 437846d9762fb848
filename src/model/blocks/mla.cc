// Multi-head latent attention with absorbed projections (DeepSeek-V2: arXiv 2405.04434, section 2.1).

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// y's columns of head h = matrices[h] times x's columns of head h, for all heads as one loop.
void head_linears(const Step& step, const std::vector<Linear>& matrices, const Rows& x, int x_step, const Rows& y,
                  int y_step) {
  Workspace& work = step.work;
  const auto heads = static_cast<int>(matrices.size());
  const int cols = matrices[0].weight.cols, outputs = matrices[0].weight.rows;
  const InputMemory::HeadInputs in =
      work.inputs.prepare_heads(step.compute, x, heads, x_step, cols, step.rows, matrices[0]);
  step.done(StepOp::kNormQuantize);
  work.parts.clear();
  for (int h = 0; h < heads; ++h) {
    const Projection of_head{.w = &matrices[static_cast<size_t>(h)], .y = y.columns(h * y_step, outputs)};
    work.parts.push_back({in.at(h), of_head, 0, step.rows});
  }
  project_parts(step.compute, work.parts, work.tiles);
}

}  // namespace

void mla_block(const Step& step, int layer, const Mla& m, const MlaWeights& w, const NormView& norm,
               const Target& target) {
  const Compute& compute = step.compute;
  Workspace& work = step.work;
  const int rows = step.rows, key = m.key_dim(), head = m.nope_dim + m.rope_dim;
  const Rows queries = work.queries.columns(0, m.heads * head), query = work.projections.columns(0, m.heads * key),
             latent = work.projections.columns(m.heads * key, key), kv = latent.columns(0, m.kv_rank);

  // The latents: of keys and values with the shared rotary key, and of queries.
  const Linear& first_q = m.q_rank > 0 ? w.q_latent : w.q;
  const Rows q_latent = m.q_rank > 0 ? work.latent.columns(0, m.q_rank) : queries;
  const Inputs in = work.inputs.prepare(compute, work.x, norm, rows, {&first_q, &w.kv_latent});
  step.done(StepOp::kNormQuantize);
  const Projection down[] = {{.w = &first_q, .y = q_latent}, {.w = &w.kv_latent, .y = latent}};
  project(compute, in, down, rows);
  if (m.q_rank > 0) {
    const Inputs q_in = work.inputs.prepare(compute, q_latent, view(m.q_norm, w.q_norm), rows, {&w.q});
    project(compute, q_in, {.w = &w.q, .y = queries}, rows);
  }
  normalize(compute, kv, view(m.kv_norm, w.kv_norm), {kv}, rows);
  step.done(StepOp::kQkv);

  // Queries as the latent keys see them: each head through its key projection, and its rotary part behind that.
  head_linears(step, w.keys, queries, head, query, key);
  copy_heads(compute, queries,
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
  position_and_store(compute,
                     {.q = query,
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
  step.attention.run(
      compute, {.q = query, .out = attended, .cache = step.cache, .layer = cached, .heads = m.heads, .scale = m.scale},
      spans);
  step.done(StepOp::kAttention);

  const Rows values = work.queries.columns(0, m.heads * m.value_dim);
  head_linears(step, w.values, attended, m.kv_rank, values, m.value_dim);
  step.done(StepOp::kO);
  project(step, values, {}, w.o, target, StepOp::kO);
}

}  // namespace quire
