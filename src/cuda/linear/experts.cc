#include "cuda/linear/experts.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/kernels/combine_experts.h"

namespace quire::cuda {
namespace {

int most_gathered_rows(const OperationLimits& limits) {
  const OperationLimits::Experts& e = limits.experts;
  return e.experts > 0 ? RouteMemory::most_gathered(limits.max_rows, e.experts, e.used) : 0;
}

size_t gathered_bytes(const OperationLimits& limits, int cols) {
  return static_cast<size_t>(most_gathered_rows(limits)) * row_stride(cols) * sizeof(float);
}

// The panels of an expert's matrix that are this rank's.
Share share_of(const Linear& w, RankNumber number) { return number.share(w.weight.panels()); }
const uint8_t* expert_panels(const Linear& w, Share share) {
  return reinterpret_cast<const uint8_t*>(w.weight.panel(share.begin));
}
const float* expert_bias(const Linear& w, Share share) {
  return w.bias.empty() ? nullptr : w.bias.data() + ptrdiff_t{share.begin} * kPanel;
}

bool have_one_format(const ExpertArgs& args) {
  const ExpertLinears& any = args.experts[0];
  return any.gate.weight.format == any.up.weight.format;
}

}  // namespace

size_t ExpertMemory::bytes(const OperationLimits& limits) {
  if (limits.experts.experts == 0) return 0;
  return gathered_bytes(limits, limits.experts.inner) + gathered_bytes(limits, limits.experts.hidden);
}

InputBuffers::Need ExpertMemory::inputs(const OperationLimits& limits) {
  return {most_gathered_rows(limits), std::max(limits.experts.hidden, limits.experts.inner)};
}

ExpertMemory::ExpertMemory(Device& device, const OperationLimits& limits) : device_(device) {
  const size_t all = bytes(limits);
  if (all == 0) return;
  memory_ = device_.allocate(all);
  const OperationLimits::Experts& e = limits.experts;
  inner_ = {reinterpret_cast<float*>(memory_), e.inner, row_stride(e.inner)};
  out_ = {reinterpret_cast<float*>(memory_ + gathered_bytes(limits, e.inner)), e.hidden, row_stride(e.hidden)};
}

ExpertMemory::~ExpertMemory() {
  for (const auto& [experts, layer] : layers_) device_.free(layer.memory);
  if (memory_) device_.free(memory_);
}

const ExpertMemory::Layer& ExpertMemory::layer_of(InputBuffers& inputs, const ExpertArgs& args, RankNumber number) {
  const auto found = layers_.find(args.experts.data());
  if (found != layers_.end()) return found->second;

  const size_t count = args.experts.size();
  const size_t matrix_bytes = count * sizeof(PartMatrices), transform_bytes = count * sizeof(TransformView);
  std::vector<std::byte> host(4 * (matrix_bytes + transform_bytes));
  Layer layer{.memory = device_.allocate(host.size())};
  size_t at = 0;
  const auto add = [&](const auto& values) {
    const auto begin = at;
    std::memcpy(host.data() + begin, values.data(), values.size() * sizeof(values[0]));
    at += values.size() * sizeof(values[0]);
    return layer.memory + begin;
  };
  // The linears linear_of(expert) and, in the same pass, up_of(expert).
  const auto inner_of = [&](const auto& linear_of, bool with_up) {
    Inner inner;
    std::vector<PartMatrices> matrices;
    std::vector<TransformView> transforms;
    bool some = false;
    for (const ExpertLinears& e : args.experts) {
      const Linear& w = linear_of(e);
      const Share own = share_of(w, number);
      matrices.push_back({expert_panels(w, own), with_up ? expert_panels(e.up, own) : nullptr, expert_bias(w, own),
                          with_up ? expert_bias(e.up, own) : nullptr, part_factor(w.weight), part_factor(e.up.weight)});
      transforms.push_back(inputs.view(w.transform));
      some = some || w.transform;
      inner.rotated = inner.rotated || (w.transform && w.transform->rotation.size != 0);
      inner.by_matrix = inner.by_matrix || (w.transform && !w.transform->rotation.matrix.empty());
    }
    inner.matrices = reinterpret_cast<const PartMatrices*>(add(matrices));
    const auto* const views = reinterpret_cast<const TransformView*>(add(transforms));
    if (some) inner.transforms = views;
    return inner;
  };
  const auto up_of = [](const ExpertLinears& e) -> const Linear& { return e.up; };
  const auto gate_of = [](const ExpertLinears& e) -> const Linear& { return e.gate; };
  layer.up = inner_of(up_of, false);
  layer.first = args.gated ? inner_of(gate_of, false) : layer.up;
  if (args.gated && have_one_format(args)) layer.together = inner_of(gate_of, true);
  layer.down = inner_of([](const ExpertLinears& e) -> const Linear& { return e.down; }, false);
  device_.upload(layer.memory, host.data(), host.size());
  return layers_.emplace(args.experts.data(), layer).first->second;
}

void ExpertMemory::run(Stream& stream, InputBuffers& inputs, const RouteMemory& routes, const ExpertArgs& args,
                       int rows, Activations mode) {
  if (rows == 0) return;
  assert(rows == routes.rows());
  const RoutesAt& at = routes.routes();
  const ExpertLinears& any = args.experts[0];
  RankGather* const ranks = stream.ranks();
  const RankNumber number = ranks ? ranks->number() : RankNumber();
  const Layer& layer = layer_of(inputs, args, number);
  const auto experts = static_cast<int>(args.experts.size());
  const int most = RouteMemory::most_gathered(rows, experts, at.used), chosen = rows * at.used;
  const int usual = std::min(rows, (chosen + experts - 1) / experts);  // of an expert
  const Rows hidden = inner_.columns(0, any.up.weight.rows), results = out_.columns(0, args.x.cols);

  const auto prepare = [&](const Linear& w, const Inner& inner, const Rows& x, bool in_place) {
    const GatheredRows gathered{.sources = at.sources,
                                .end = at.offsets + experts,
                                .transforms = inner.transforms,
                                .begins = at.offsets,
                                .parts = experts,
                                .in_place = in_place ? 1 : 0};
    const Activations form = input_form(mode, w);
    const Inputs in = inputs.prepare_gathered(stream, form, w, x, gathered, most, inner.rotated, inner.by_matrix);
    const Inputs::Entry& entry = in.of(form, w);
    return PreparedRows{reinterpret_cast<const uint8_t*>(entry.data), static_cast<int32_t>(entry.stride)};
  };
  const auto run = [&](const Linear& w, const Inner& inner, const PreparedRows& in, const Rows& y, bool gated,
                       bool gates_target, bool nonlinear) {
    const SharedColumns outputs{y, w.weight.panels(), kPanel};
    const Share own = outputs.columns_of(share_of(w, number));
    if (own.size() == 0) return;
    PackedMatrix like = w.weight;
    like.rows = own.size();
    project_parts(stream, in, input_form(mode, w),
                  {.like = like,
                   .parts = {.matrices = inner.matrices, .count = experts, .begins = at.offsets, .rows = at.counts},
                   .most_parts = std::min(experts, chosen),
                   .most_rows = rows,
                   .usual_rows = usual,
                   .y = y.columns(own.begin, own.size()),
                   .gated = gated,
                   .gates_target = gates_target,
                   .f = nonlinear ? args.f : Nonlinearity::kNone,
                   .alpha = args.alpha,
                   .limit = args.limit});
  };
  const Linear& first = args.gated ? any.gate : any.up;
  const PreparedRows in = prepare(first, layer.first, args.x, false);
  // Kernels for many rows multiply one matrix at a time.
  const bool together = args.gated && have_one_format(args) &&
                        !takes_many_part_rows(stream.facts(), first.weight, input_form(mode, first), usual);
  if (together) {
    run(first, layer.together, in, hidden, true, false, true);
  } else {
    if (args.gated) {
      const bool same_form = input_form(mode, any.up) == input_form(mode, first);
      run(any.up, layer.up, same_form ? in : prepare(any.up, layer.up, args.x, false), hidden, false, false, false);
    }
    run(first, layer.first, in, hidden, false, args.gated, true);
  }
  const auto gather = [&](const Linear& w, const Rows& y, int count) {
    if (!ranks) return;
    const SharedColumns gathered[] = {{y, w.weight.panels(), kPanel}};
    ranks->gather(stream, gathered, count);
  };
  gather(first, hidden, most);
  run(any.down, layer.down, prepare(any.down, layer.down, hidden, true), results, false, false, false);

  // Of the weighted sums each rank has some columns, and the others' are gathered.
  const Target& target = args.target;
  const SharedColumns sums{target.to, any.down.weight.panels(), kPanel};
  const Share own = sums.columns_of(share_of(any.down, number));
  const size_t bytes = any.gate.weight.bytes() + any.up.weight.bytes() + any.down.weight.bytes();
  stream.launch({.x = std::max(1, (own.size() + CombineExperts::kThreads - 1) / CombineExperts::kThreads),
                 .y = rows,
                 .threads = CombineExperts::kThreads},
                CombineExperts{.routes = at,
                               .results = {results.data + own.begin, results.stride},
                               .target = {target.to.data + own.begin, target.to.stride},
                               .total = routes.total(),
                               .expert_bytes = bytes,
                               .cols = own.size(),
                               .scale = target.scale,
                               .accumulate = target.accumulate ? 1 : 0});
  gather(any.down, target.to, rows);
}

}  // namespace quire::cuda
