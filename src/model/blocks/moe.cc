// A mixture of experts (arXiv 1701.06538; shared experts: 2401.06066). Rows are gathered by expert, so that the linears of
// an expert see all its rows at once; only the chosen experts' weights are read.

#include <algorithm>
#include <cassert>
#include <iterator>

#include "model/blocks/blocks.h"

namespace quire {
namespace {

// The experts' linears from gathered inputs to gathered results.
template <class Of>
void run_experts(const Step& step, const Inputs& in, const Of& projection_of) {
  Workspace& work = step.work;
  work.parts.clear();
  for (const ExpertRows::Expert& e : work.experts.experts())
    work.parts.push_back({in, projection_of(e), e.begin, e.end});
  project_parts(step.compute, work.parts, work.tiles);
}

// The MLP that every token uses, weighted by a gate of its own.
void shared_block(const Step& step, const Moe& m, const MoeWeights& w, const Target& target) {
  Workspace& work = step.work;
  const Mlp mlp{.size = m.shared_size, .nonlinearity = m.nonlinearity, .gated = m.gated};
  const Rows x = m.shared_in ? work.x : work.normed, out = work.expert_out;
  const NormView norm = view(m.shared_in, w.shared_in);
  if (m.shared_out) {
    mlp_block(step, mlp, w.shared, x, norm, {out});
    return normalize(step.compute, out, view(m.shared_out, w.shared_out), target, step.rows);
  }
  if (!m.shared_gate) return mlp_block(step, mlp, w.shared, x, norm, target);
  const Rows gate = work.scores.columns(0, 1);
  project(step, work.normed, {}, w.shared_gate, {gate}, StepOp::kRoute);
  mlp_block(step, mlp, w.shared, x, norm, {out});
  add_gated(step.compute, out, gate, target.scale, target.to, step.rows);
}

}  // namespace

void moe_block(const Step& step, const Moe& m, const MoeWeights& w, const NormView& norm, const Target& target) {
  const Compute& compute = step.compute;
  Workspace& work = step.work;
  assert(!m.shared_in || target.to.data != work.x.data);  // the shared MLP reads x after the experts have written
  assert(m.shared_in || !m.experts_out);                  // `normed` holds their sum
  const Rows normed = work.normed;
  normalize(compute, work.x, norm, {normed}, step.rows);
  const Rows scores = work.scores.columns(0, 2 * m.routing.experts);
  const Inputs router_in = work.inputs.prepare(compute, m.router_in ? work.x : normed, view(m.router_in, w.router_in),
                                               step.rows, {&w.router}, Activations::kF32);
  project(compute, router_in, {.w = &w.router, .y = scores, .scale = m.router_scale, .as = Activations::kF32},
          step.rows);
  work.experts.route(compute, m.routing,
                     {m.correction ? w.correction.data() : nullptr, m.expert_scales ? w.scales.data() : nullptr},
                     scores, step.rows);
  step.done(StepOp::kRoute);

  const auto sources = work.experts.sources();
  const Rows inner = work.expert_inner.columns(0, m.size), out = work.expert_out;
  // All experts have matrices of one type.
  const MlpWeights& any = w.experts[0];
  const size_t expert_bytes = any.gate.weight.bytes() + any.up.weight.bytes() + any.down.weight.bytes();
  work.expert_bytes += work.experts.experts().size() * expert_bytes;
  const auto expert_of = [&](int row) -> const MlpWeights& {  // experts begin at groups of rows
    const auto experts = work.experts.experts();
    const auto after = std::ranges::upper_bound(experts, row, {}, &ExpertRows::Expert::begin);
    return w.experts[static_cast<size_t>(std::prev(after)->expert)];
  };
  const Inputs in = work.inputs.prepare_gathered(compute, normed, sources, false, [&](int row) -> const Linear& {
    return m.gated ? expert_of(row).gate : expert_of(row).up;
  });
  run_experts(step, in, [&](const ExpertRows::Expert& e) {
    const MlpWeights& expert = w.experts[static_cast<size_t>(e.expert)];
    return Projection{.w = m.gated ? &expert.gate : &expert.up,
                      .y = inner,
                      .up = m.gated ? &expert.up : nullptr,
                      .f = m.nonlinearity,
                      .alpha = m.alpha,
                      .limit = m.limit};
  });
  const Inputs mixed = work.inputs.prepare_gathered(compute, inner, sources, true,
                                                    [&](int row) -> const Linear& { return expert_of(row).down; });
  run_experts(step, mixed, [&](const ExpertRows::Expert& e) {
    return Projection{.w = &w.experts[static_cast<size_t>(e.expert)].down, .y = out};
  });
  const Target sum = m.experts_out ? Target{normed} : target;
  if (!sum.accumulate) clear(compute, sum.to, step.rows);
  work.experts.combine(compute, out, sum.scale, sum.to, step.rows);
  if (m.experts_out) normalize(compute, normed, view(m.experts_out, w.experts_out), target, step.rows);
  step.done(StepOp::kExperts);

  if (m.shared_size > 0) shared_block(step, m, w, {target.to, target.scale, true});
}

}  // namespace quire
