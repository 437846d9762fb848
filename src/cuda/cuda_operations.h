// The operations of one model on a device, with the memory that they need for themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "cuda/attention/attention.h"
#include "cuda/attention/attention_lists.h"
#include "cuda/linear/experts.h"
#include "cuda/linear/inputs.h"
#include "cuda/ranks/rank_gather.h"
#include "cuda/recurrent.h"
#include "cuda/route.h"
#include "cuda/stream.h"
#include "ops/backend.h"

namespace quire::cuda {

// Calls record launches, which finish() runs.
class CudaOperations final : public Operations {
 public:
  // activations: bf16, f32 or int8. The device must outlive it, and so must variants (Stream). Throws Error (kResource).
  CudaOperations(Device& device, bool graphs, Activations activations, const OperationLimits& limits,
                 const RankLink& ranks = {}, const VariantTable* variants = nullptr);
  ~CudaOperations() override;
  static size_t memory_bytes(const OperationLimits& limits);

  void start() override;
  void finish_first() override;
  void finish() override;
  void discard() noexcept override;
  void observe_inputs(InputObserver* observer) override;
  void upload(std::span<const float> from, float* to) override;
  void download(const std::byte* from, std::span<std::byte> to) override {
    stream_.download(to.data(), from, to.size());
  }

  void embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) override;
  void add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& scratch,
                      const Rows& x) override;
  void normalize(const Rows& x, const NormView& norm, const Target& target, int rows) override;
  void normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) override;
  void add(const Rows& x, float scale, const Rows& to, int rows) override;
  void add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) override;
  void scale(const Rows& x, float by, int rows) override;
  void cut_below(const Rows& x, float deviations, int rows) override;
  void match_magnitude(const Rows& x, const Rows& like, int rows) override;
  void combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) override;
  void tanh(const Rows& x, int rows) override;
  void soft_cap(const Rows& x, float cap, int rows) override;
  void copy(const Rows& x, const Rows& to, int rows) override;
  void gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) override;
  void copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) override;
  void multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) override;

  Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                 std::optional<Activations> as) override;
  void project(const Inputs& x, std::span<const Projection> list, int rows) override;
  void project_heads(const HeadProjections& heads, int rows) override;

  void rotations(std::span<const RotationSpan> spans, const Rows& to) override;
  void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) override;
  void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) override;

  void route(const RouteArgs& args, int rows) override;
  void run_experts(const ExpertArgs& args, int rows) override;
  uint64_t take_expert_bytes() override { return expert_bytes_ ? expert_bytes_->take() : 0; }

  void convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) override;
  void delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                  int rows) override;
  void state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                   int rows) override;

  std::byte* pick(const Rows& x, std::span<const Pick> picks) override;
  void embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale, const Rows& x) override;

 private:
  Device& device_;
  std::optional<RankGather> ranks_;  // none: it computes all
  Stream stream_;
  const Activations activations_;
  InputBuffers inputs_;
  std::byte* route_memory_ = nullptr;
  RouteMemory routes_;
  std::optional<ExpertMemory> experts_;  // none: the model has none
  std::optional<ExpertBytes> expert_bytes_;
  std::byte* picked_ = nullptr;          // results of pick()
  std::vector<int32_t> token_words_;     // of each row of pick(): where its token is among them
  std::vector<int32_t> embedded_words_;  // of embed_picked(), reused
  SpanLists spans_;
  AttentionLists attention_lists_;
};

}  // namespace quire::cuda
