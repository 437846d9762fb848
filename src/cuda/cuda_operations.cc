#include "cuda/cuda_operations.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "cuda/attention/position.h"
#include "cuda/linear/embedding.h"
#include "cuda/linear/linear.h"
#include "cuda/rows.h"
#include "cuda/sample.h"
#include "ops/discard_on_error.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

// For results of attention's splits, and of linears' ranges.
size_t scratch_bytes(const OperationLimits& limits) {
  constexpr size_t kUsual = size_t{64} << 20;
  return std::max(kUsual, AttentionMemory::bytes(limits));
}

std::vector<InputBuffers::Need> input_needs(const OperationLimits& l) {
  std::vector<InputBuffers::Need> needs = l.inputs;
  if (l.experts.experts > 0) needs.push_back(ExpertMemory::inputs(l));
  if (l.heads.heads > 0) needs.push_back({InputBuffers::head_rows(l.heads.heads, l.max_rows), l.heads.cols});
  return needs;
}

size_t picked_bytes(const OperationLimits& limits) {
  return static_cast<size_t>(limits.max_picked) * Pick::kWordsPerRow * sizeof(uint32_t);
}

}  // namespace

CudaOperations::CudaOperations(Device& device, bool graphs, Activations activations, const OperationLimits& limits,
                               const RankLink& ranks, const VariantTable* variants)
    : device_(device),
      ranks_(ranks.exchange ? std::make_optional<RankGather>(device, ranks) : std::nullopt),
      stream_(device, graphs, scratch_bytes(limits), ranks_ ? &*ranks_ : nullptr, variants),
      activations_(activations),
      inputs_(device, input_needs(limits), limits.forms) {
  if (limits.max_picked > 0) picked_ = device.allocate(picked_bytes(limits));
  if (limits.experts.experts == 0) return;
  experts_.emplace(device, limits);
  route_memory_ = device.allocate(RouteMemory::bytes(limits));
  routes_ = RouteMemory(route_memory_, limits);
  expert_bytes_.emplace(device, routes_);
}

CudaOperations::~CudaOperations() {
  if (route_memory_) device_.free(route_memory_);
  if (picked_) device_.free(picked_);
}

size_t CudaOperations::memory_bytes(const OperationLimits& limits) {
  const bool experts = limits.experts.experts > 0;
  return scratch_bytes(limits) + Stream::kAllPlaces + (limits.ranks > 1 ? RankGather::kBytes : 0) +
         InputBuffers::bytes(input_needs(limits), limits.forms) + picked_bytes(limits) +
         (experts ? ExpertMemory::bytes(limits) + RouteMemory::bytes(limits) : 0);
}

void CudaOperations::start() {
  if (expert_bytes_) expert_bytes_->download(stream_);
  stream_.end_pass();
}
void CudaOperations::finish_first() {
  stream_.finish_first();
  if (expert_bytes_) expert_bytes_->finished_first();
}
void CudaOperations::finish() {
  if (!expert_bytes_) return stream_.finish();
  const DiscardOnError guard(*this);
  expert_bytes_->download(stream_);
  stream_.finish();
  expert_bytes_->finished();
}
void CudaOperations::discard() noexcept {
  stream_.discard();
  if (expert_bytes_) expert_bytes_->discarded();
}

void CudaOperations::observe_inputs(InputObserver* observer) {
  if (observer)
    throw Error(ErrorKind::kUnsupported, "inputs of linears can be observed on the CPU only; use --device cpu");
}

void CudaOperations::upload(std::span<const float> from, float* to) { cuda::upload(stream_, from, to); }
void CudaOperations::embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) {
  cuda::embed(stream_, matrix, ids, scale, x);
}
void CudaOperations::add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows&,
                                    const Rows& x) {
  cuda::add_embeddings(stream_, matrix, ids, scale, x);
}
void CudaOperations::normalize(const Rows& x, const NormView& norm, const Target& target, int rows) {
  cuda::normalize(stream_, x, norm, target, rows);
}
void CudaOperations::normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) {
  cuda::normalize(stream_, x, norm, target, rows);
}
void CudaOperations::add(const Rows& x, float scale, const Rows& to, int rows) {
  cuda::add(stream_, x, scale, to, rows);
}
void CudaOperations::add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) {
  cuda::add_gated(stream_, x, gate, scale, to, rows);
}
void CudaOperations::scale(const Rows& x, float by, int rows) { cuda::scale(stream_, x, by, rows); }
void CudaOperations::cut_below(const Rows& x, float deviations, int rows) {
  cuda::cut_below(stream_, x, deviations, rows);
}
void CudaOperations::match_magnitude(const Rows& x, const Rows& like, int rows) {
  cuda::match_magnitude(stream_, x, like, rows);
}
void CudaOperations::combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) {
  cuda::combine(stream_, x, coefficients, target, rows);
}
void CudaOperations::tanh(const Rows& x, int rows) { cuda::tanh(stream_, x, rows); }
void CudaOperations::soft_cap(const Rows& x, float cap, int rows) { cuda::soft_cap(stream_, x, cap, rows); }
void CudaOperations::copy(const Rows& x, const Rows& to, int rows) { cuda::copy(stream_, x, to, rows); }
void CudaOperations::gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) {
  cuda::gather(stream_, x, rows, to);
}
void CudaOperations::copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) {
  cuda::copy_heads(stream_, x, columns, y, rows);
}
void CudaOperations::multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) {
  cuda::multiply_gate(stream_, y, gate, f, rows);
}

Inputs CudaOperations::prepare(const Rows& x, const NormView& norm, int rows,
                               std::initializer_list<const Linear*> linears, std::optional<Activations> as) {
  return inputs_.prepare(stream_, activations_, x, norm, rows, linears, as, true);
}
void CudaOperations::project(const Inputs& x, std::span<const Projection> list, int rows) {
  cuda::project(stream_, x, list, rows, activations_, {}, &inputs_.late());
}
void CudaOperations::project_heads(const HeadProjections& heads, int rows) {
  cuda::project_heads(stream_, inputs_, heads, rows, activations_);
}

void CudaOperations::rotations(std::span<const RotationSpan> spans, const Rows& to) {
  cuda::rotations(stream_, spans, to);
}
void CudaOperations::position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) {
  cuda::position_and_store(stream_, attention_lists_, args, spans, rows);
}
void CudaOperations::attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) {
  cuda::attend(stream_, attention_lists_, spec, spans, {stream_.scratch(), stream_.scratch_bytes()});
}

void CudaOperations::route(const RouteArgs& args, int rows) { routes_.route(stream_, args, rows); }
void CudaOperations::run_experts(const ExpertArgs& args, int rows) {
  assert(!args.source);
  experts_->run(stream_, inputs_, routes_, args, rows, activations_);
}

void CudaOperations::convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) {
  cuda::convolve(stream_, spans_, states, args, spans);
}
void CudaOperations::delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                                int rows) {
  cuda::delta_rule(stream_, spans_, states, args, spans, rows);
}
void CudaOperations::state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                                 int rows) {
  cuda::state_space(stream_, spans_, states, args, spans, rows);
}

std::byte* CudaOperations::pick(const Rows& x, std::span<const Pick> picks) {
  cuda::pick(stream_, x, picks, reinterpret_cast<uint32_t*>(picked_));
  token_words_.clear();
  size_t words = 0;
  for (const Pick& pick : picks) {
    token_words_.push_back(static_cast<int32_t>(words + pick.token_word()));
    words += pick.words();
  }
  return picked_;
}
void CudaOperations::embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale,
                                  const Rows& x) {
  embedded_words_.clear();
  for (const int32_t row : rows) embedded_words_.push_back(token_words_[static_cast<size_t>(row)]);
  cuda::embed_found(stream_, matrix, embedded_words_, reinterpret_cast<const int32_t*>(picked_), scale, x);
}

}  // namespace quire::cuda
