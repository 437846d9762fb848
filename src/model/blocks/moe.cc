// A mixture of experts (arXiv 1701.06538; shared experts: 2401.06066). Rows are gathered by expert, so that the linears of
// an expert see all its rows at once; only the chosen experts' weights are read.

#include <algorithm>
#include <cassert>
#include <iterator>

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// The MLP that every token uses, weighted by a gate of its own.
void shared_block(const Step& step, const Moe& m, const MoeWeights& w, const Target& target) {
  Workspace& work = step.work;
  const Mlp mlp{.size = m.shared_size, .nonlinearity = m.nonlinearity, .gated = m.gated};
  const Rows x = m.shared_in ? work.x : work.normed, out = work.shared;
  const NormView norm = view(m.shared_in, w.shared_in);
  if (m.shared_out) {
    mlp_block(step, mlp, w.shared, x, norm, {out});
    return step.ops.normalize(out, view(m.shared_out, w.shared_out), target, step.rows);
  }
  if (!m.shared_gate) return mlp_block(step, mlp, w.shared, x, norm, target);
  const Rows gate = work.scores.columns(0, 1);
  project(step, work.normed, {}, w.shared_gate, {gate}, StepOp::kRoute);
  mlp_block(step, mlp, w.shared, x, norm, {out});
  step.ops.add_gated(out, gate, target.scale, target.to, step.rows);
}

}  // namespace

void moe_block(const Step& step, const Moe& m, const MoeWeights& w, const NormView& norm, const Target& target) {
  Operations& ops = step.ops;
  Workspace& work = step.work;
  assert(!m.shared_in || target.to.data != work.x.data);  // the shared MLP reads x after the experts have written
  assert(m.shared_in || !m.experts_out);                  // `normed` holds their sum
  const Rows normed = work.normed;
  ops.normalize(work.x, norm, {normed}, step.rows);
  const Rows scores = work.scores.columns(0, 2 * m.routing.experts);
  const Inputs router_in = ops.prepare(m.router_in ? work.x : normed, view(m.router_in, w.router_in), step.rows,
                                       {&w.router}, Activations::kF32);
  ops.project(router_in, {.w = &w.router, .y = scores, .scale = m.router_scale, .as = Activations::kF32}, step.rows);
  ops.route({.routing = m.routing,
             .correction = w.correction.data(),
             .scales = w.scales.data(),
             .scores = scores,
             .on_host = w.on_host},
            step.rows);
  step.done(StepOp::kRoute);

  ops.run_experts({.experts = w.experts,
                   .source = w.source,
                   .first = w.first_expert,
                   .on_host = w.on_host,
                   .gated = m.gated,
                   .f = m.nonlinearity,
                   .alpha = m.alpha,
                   .limit = m.limit,
                   .x = normed,
                   .target = m.experts_out ? Target{normed} : target},
                  step.rows);
  if (m.experts_out) ops.normalize(normed, view(m.experts_out, w.experts_out), target, step.rows);
  step.done(StepOp::kExperts);

  if (m.shared_size > 0) shared_block(step, m, w, {target.to, target.scale, true});
}

}  // namespace quire
