// Decorators: a backend and its operations that hand all calls to others. Who wants to look at some operations overrides them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/backend.h"

namespace quire {

class ForwardingOperations : public Operations {
 public:
  explicit ForwardingOperations(std::unique_ptr<Operations> inner) : inner_(std::move(inner)) {}

  using Operations::project;

  void start() override { inner_->start(); }
  void finish_first() override { inner_->finish_first(); }
  void finish() override { inner_->finish(); }
  void discard() noexcept override { inner_->discard(); }
  void observe_inputs(InputObserver* observer) override { inner_->observe_inputs(observer); }
  void upload(std::span<const float> from, float* to) override { inner_->upload(from, to); }
  void download(const std::byte* from, std::span<std::byte> to) override { inner_->download(from, to); }

  void embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) override {
    inner_->embed(matrix, ids, scale, x);
  }
  void add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& scratch,
                      const Rows& x) override {
    inner_->add_embeddings(matrix, ids, scale, scratch, x);
  }
  void normalize(const Rows& x, const NormView& norm, const Target& target, int rows) override {
    inner_->normalize(x, norm, target, rows);
  }
  void normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) override {
    inner_->normalize(x, norm, target, rows);
  }
  void add(const Rows& x, float scale, const Rows& to, int rows) override { inner_->add(x, scale, to, rows); }
  void add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) override {
    inner_->add_gated(x, gate, scale, to, rows);
  }
  void scale(const Rows& x, float by, int rows) override { inner_->scale(x, by, rows); }
  void cut_below(const Rows& x, float deviations, int rows) override { inner_->cut_below(x, deviations, rows); }
  void match_magnitude(const Rows& x, const Rows& like, int rows) override { inner_->match_magnitude(x, like, rows); }
  void combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) override {
    inner_->combine(x, coefficients, target, rows);
  }
  void tanh(const Rows& x, int rows) override { inner_->tanh(x, rows); }
  void soft_cap(const Rows& x, float cap, int rows) override { inner_->soft_cap(x, cap, rows); }
  void copy(const Rows& x, const Rows& to, int rows) override { inner_->copy(x, to, rows); }
  void gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) override { inner_->gather(x, rows, to); }
  void copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) override {
    inner_->copy_heads(x, columns, y, rows);
  }
  void multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) override {
    inner_->multiply_gate(y, gate, f, rows);
  }

  Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                 std::optional<Activations> as) override {
    return inner_->prepare(x, norm, rows, linears, as);
  }
  void project(const Inputs& x, std::span<const Projection> list, int rows) override { inner_->project(x, list, rows); }
  void project_heads(const HeadProjections& heads, int rows) override { inner_->project_heads(heads, rows); }
  void add_low_rank(const Rows& x, const NormView& norm, const Rows& inner,
                    std::span<const LowRankProduct> products) override {
    inner_->add_low_rank(x, norm, inner, products);
  }

  void rotations(std::span<const RotationSpan> spans, const Rows& to) override { inner_->rotations(spans, to); }
  void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) override {
    inner_->position_and_store(args, spans, rows);
  }
  void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) override { inner_->attend(spec, spans); }

  void route(const RouteArgs& args, int rows) override { inner_->route(args, rows); }
  void run_experts(const ExpertArgs& args, int rows) override { inner_->run_experts(args, rows); }
  uint64_t take_expert_bytes() override { return inner_->take_expert_bytes(); }

  void convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) override {
    inner_->convolve(states, args, spans);
  }
  void delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                  int rows) override {
    inner_->delta_rule(states, args, spans, rows);
  }
  void state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                   int rows) override {
    inner_->state_space(states, args, spans, rows);
  }

  std::byte* pick(const Rows& x, std::span<const Pick> picks) override { return inner_->pick(x, picks); }
  void embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale, const Rows& x) override {
    inner_->embed_picked(matrix, rows, scale, x);
  }

 protected:
  Operations& inner() const { return *inner_; }

 private:
  std::unique_ptr<Operations> inner_;
};

class ForwardingBackend : public Backend {
 public:
  // The backend must outlive it.
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  Activations default_activations() const override { return inner_.default_activations(); }
  std::optional<size_t> own_memory() const override { return inner_.own_memory(); }
  bool reads_experts() const override { return inner_.reads_experts(); }
  bool picks_logits() const override { return inner_.picks_logits(); }
  bool folds_low_rank() const override { return inner_.folds_low_rank(); }
  int packing_version() const override { return inner_.packing_version(); }
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override {
    return inner_.operations(activations, limits);
  }
  size_t operations_bytes(const OperationLimits& limits) const override { return inner_.operations_bytes(limits); }
  std::string tuned_as() const override { return inner_.tuned_as(); }
  KernelChoices tune(std::span<const TunedProjection> projections, Activations activations, int rows,
                     const KernelChoices& known, const std::function<void(size_t, size_t)>& report) override {
    return inner_.tune(projections, activations, rows, known, report);
  }
  std::optional<BackendRates> measure_rates() override { return inner_.measure_rates(); }

  std::byte* allocate(size_t bytes) override { return inner_.allocate(bytes); }
  void free(std::byte* memory, size_t bytes) override { inner_.free(memory, bytes); }
  std::byte* allocate_host(size_t bytes) override { return inner_.allocate_host(bytes); }
  void free_host(std::byte* memory, size_t bytes) override { inner_.free_host(memory, bytes); }
  const std::byte* share(std::span<const std::byte> host) override { return inner_.share(host); }
  void write(std::byte* to, size_t bytes, const Fill& fill) override { inner_.write(to, bytes, fill); }
  std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy& copy) override {
    return inner_.view(from, bytes, copy);
  }
  void upload(std::span<const std::byte> from, std::byte* to) override { inner_.upload(from, to); }
  void read(std::byte* from, std::span<std::byte> to) override { inner_.read(from, to); }
  bool pin(std::span<std::byte> host) override { return inner_.pin(host); }
  void unpin(std::span<std::byte> host) override { inner_.unpin(host); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { inner_.copy(to, from, bytes); }
  void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) override {
    inner_.take_rows(from, rows, to);
  }

 protected:
  Backend& inner() const { return inner_; }

 private:
  Backend& inner_;
};

}  // namespace quire
