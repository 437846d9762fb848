#include "ops/cpu/cpu_operations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/low_rank.h"
#include "ops/cpu/recurrent.h"
#include "ops/cpu/rows.h"

namespace quire {

CpuOperations::Carved CpuOperations::carve(const OperationLimits& l, std::byte* memory) {
  Carved c;
  const auto part = [&](size_t size) {
    const size_t begin = c.bytes;
    c.bytes += (size + 63) / 64 * 64;
    return memory ? memory + begin : nullptr;
  };
  const int gathered = l.experts.experts > 0 ? ExpertRows::most_gathered(l.max_rows, l.experts) : 0;
  const auto gathered_rows = [&](int cols) -> Rows {
    const size_t stride = row_stride(cols);
    return {reinterpret_cast<float*>(part(static_cast<size_t>(gathered) * stride * sizeof(float))), cols, stride};
  };
  std::vector<InputMemory::Need> needs = l.inputs;
  if (gathered > 0) {
    c.expert_inner = gathered_rows(l.experts.inner);
    c.expert_out = gathered_rows(l.experts.hidden);
    needs.push_back({gathered, std::max(l.experts.hidden, l.experts.inner)});
  }
  if (l.heads.heads > 0) needs.push_back({InputMemory::head_rows(l.heads.heads, l.max_rows), l.heads.cols});
  c.inputs = InputMemory(part(InputMemory::bytes(needs, l.forms)), needs, l.forms);
  return c;
}

CpuOperations::CpuOperations(const Compute& compute, const OperationLimits& limits)
    : compute_(compute),
      memory_(carve(limits, nullptr).bytes),
      carved_(carve(limits, memory_.data())),
      attention_(compute.team, AttentionOp::limits_of(limits)) {
  if (limits.experts.experts > 0) {
    routes_ = ExpertRows(limits.max_rows, limits.experts);
    expert_group_ = ExpertGroup(limits.max_rows, limits.experts);
  }
  parts_.parts.reserve(static_cast<size_t>(std::max(limits.experts.experts, limits.heads.heads)));
}

size_t CpuOperations::memory_bytes(int threads, const OperationLimits& limits) {
  return carve(limits, nullptr).bytes + AttentionOp::memory_bytes(threads, AttentionOp::limits_of(limits)) +
         (limits.experts.experts > 0 ? ExpertRows::memory_bytes(limits.max_rows, limits.experts) +
                                           ExpertGroup::memory_bytes(limits.max_rows, limits.experts)
                                     : 0);
}

void CpuOperations::upload(std::span<const float> from, float* to) { std::ranges::copy(from, to); }
void CpuOperations::download(const std::byte* from, std::span<std::byte> to) {
  std::copy_n(from, to.size(), to.begin());
}

void CpuOperations::embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) {
  quire::embed(compute_, matrix, ids, scale, x);
}
void CpuOperations::add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale,
                                   const Rows& scratch, const Rows& x) {
  quire::add_embeddings(compute_, matrix, ids, scale, scratch, x);
}
void CpuOperations::normalize(const Rows& x, const NormView& norm, const Target& target, int rows) {
  quire::normalize(compute_, x, norm, target, rows);
}
void CpuOperations::normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) {
  quire::normalize(compute_, x, norm, target, rows);
}
void CpuOperations::add(const Rows& x, float scale, const Rows& to, int rows) {
  quire::add(compute_, x, scale, to, rows);
}
void CpuOperations::add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) {
  quire::add_gated(compute_, x, gate, scale, to, rows);
}
void CpuOperations::scale(const Rows& x, float by, int rows) { quire::scale(compute_, x, by, rows); }
void CpuOperations::cut_below(const Rows& x, float deviations, int rows) {
  quire::cut_below(compute_, x, deviations, rows);
}
void CpuOperations::match_magnitude(const Rows& x, const Rows& like, int rows) {
  quire::match_magnitude(compute_, x, like, rows);
}
void CpuOperations::combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) {
  quire::combine(compute_, x, coefficients, target, rows);
}
void CpuOperations::tanh(const Rows& x, int rows) { quire::tanh(compute_, x, rows); }
void CpuOperations::soft_cap(const Rows& x, float cap, int rows) { quire::soft_cap(compute_, x, cap, rows); }
void CpuOperations::copy(const Rows& x, const Rows& to, int rows) { quire::copy(compute_, x, to, rows); }
void CpuOperations::gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) {
  quire::gather(compute_, x, rows, to);
}
void CpuOperations::copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) {
  quire::copy_heads(compute_, x, columns, y, rows);
}
void CpuOperations::multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) {
  quire::multiply_gate(compute_, y, gate, f, rows);
}

Inputs CpuOperations::prepare(const Rows& x, const NormView& norm, int rows,
                              std::initializer_list<const Linear*> linears, std::optional<Activations> as) {
  return carved_.inputs.prepare(compute_, x, norm, rows, linears, as);
}
void CpuOperations::project(const Inputs& x, std::span<const Projection> list, int rows) {
  quire::project(compute_, x, list, rows);
}
void CpuOperations::project_heads(const HeadProjections& heads, int rows) {
  quire::project_heads(compute_, carved_.inputs, parts_, heads, rows);
}
void CpuOperations::add_low_rank(const Rows& x, const NormView& norm, const Rows& inner,
                                 std::span<const LowRankProduct> products) {
  quire::add_low_rank(compute_, carved_.inputs, parts_, x, norm, inner, products);
}

void CpuOperations::rotations(std::span<const RotationSpan> spans, const Rows& to) {
  quire::rotations(compute_, spans, to);
}
void CpuOperations::position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) {
  quire::position_and_store(compute_, args, spans, rows);
}
void CpuOperations::attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) {
  attention_.run(compute_, spec, spans);
}

void CpuOperations::route(const RouteArgs& args, int rows) { routes_.route(compute_, args, rows); }
void CpuOperations::run_experts(const ExpertArgs& args, int rows) {
  expert_bytes_ += quire::run_experts(compute_, carved_.inputs, parts_, routes_, expert_group_, carved_.expert_inner,
                                      carved_.expert_out, args, rows);
}
uint64_t CpuOperations::take_expert_bytes() { return std::exchange(expert_bytes_, 0); }

void CpuOperations::convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) {
  quire::convolve(compute_, states, args, spans);
}
void CpuOperations::delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                               int rows) {
  quire::delta_rule(compute_, states, args, spans, rows);
}
void CpuOperations::state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                                int rows) {
  quire::state_space(compute_, states, args, spans, rows);
}

// The host reads logits in place, so this is for tests: not fast, and its memory is not among memory_bytes().
std::byte* CpuOperations::pick(const Rows& x, std::span<const Pick> picks) {
  size_t words = 0;
  for (const Pick& pick : picks) words += pick.words();
  picked_.resize(words);
  picked_tokens_.clear();
  std::span<uint32_t> to = picked_;
  for (size_t row = 0; row < picks.size(); ++row) {
    quire::pick({x.row(static_cast<int>(row)), static_cast<size_t>(x.cols)}, picks[row], to.first(picks[row].words()));
    picked_tokens_.push_back(picks[row].best > 0 ? static_cast<int32_t>(to[picks[row].token_word()]) : -1);
    to = to.subspan(picks[row].words());
  }
  return reinterpret_cast<std::byte*>(picked_.data());
}

void CpuOperations::embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale,
                                 const Rows& x) {
  ids_.clear();
  for (const int32_t row : rows) ids_.push_back(picked_tokens_[static_cast<size_t>(row)]);
  embed(matrix, ids_, scale, x);
}

}  // namespace quire
