// The operations of one model on this machine's processor, with the memory that they need for themselves.
#pragma once

#include "base/memory.h"
#include "ops/backend.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/compute.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/linear.h"

namespace quire {

class CpuOperations final : public Operations {
 public:
  CpuOperations(const Compute& compute, const OperationLimits& limits);
  static size_t memory_bytes(int threads, const OperationLimits& limits);

  void finish() override {}
  void discard() noexcept override {}  // each has run when its call returns
  void observe_inputs(InputObserver* observer) override { compute_.observer = observer; }
  void upload(std::span<const float> from, float* to) override;
  void download(const std::byte* from, std::span<std::byte> to) override;

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
  void add_low_rank(const Rows& x, const NormView& norm, const Rows& inner,
                    std::span<const LowRankProduct> products) override;

  void rotations(std::span<const RotationSpan> spans, const Rows& to) override;
  void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) override;
  void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) override;

  void route(const RouteArgs& args, int rows) override;
  void run_experts(const ExpertArgs& args, int rows) override;
  uint64_t take_expert_bytes() override;

  void convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) override;
  void delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                  int rows) override;
  void state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                   int rows) override;

  std::byte* pick(const Rows& x, std::span<const Pick> picks) override;
  void embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale, const Rows& x) override;

 private:
  struct Carved {
    InputMemory inputs;
    Rows expert_inner, expert_out;  // gathered rows
    size_t bytes = 0;
  };
  static Carved carve(const OperationLimits& limits, std::byte* memory);  // nullptr: counts bytes

  Compute compute_;
  LargeBuffer memory_;
  const Carved carved_;
  AttentionOp attention_;
  ExpertRows routes_;
  ExpertGroup expert_group_;
  ProjectionParts parts_;
  uint64_t expert_bytes_ = 0;
  std::vector<uint32_t> picked_;
  std::vector<int32_t> picked_tokens_, ids_;  // the token of each picked row, or -1; of embed_picked()
};

}  // namespace quire
