#include "fenced/fenced_backend.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace quire::testing {
namespace {

constexpr size_t kMapping = size_t{1} << 36;  // address space, not memory
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;

size_t whole_lines(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

void clear(std::byte* memory, size_t bytes) {
  const auto begin = reinterpret_cast<size_t>(memory), first = (begin + kPage - 1) / kPage * kPage,
             last = (begin + bytes) / kPage * kPage;
  if (first >= last) {
    std::memset(memory, 0, bytes);
    return;
  }
  std::memset(memory, 0, first - begin);
  ::madvise(memory + (first - begin), last - first, MADV_DONTNEED);  // pages that nobody has touched stay untouched
  std::memset(memory + (last - begin), 0, begin + bytes - last);
}

class FencedOperations final : public Operations {
 public:
  FencedOperations(FencedBackend& backend, std::unique_ptr<Operations> inner)
      : backend_(backend), inner_(std::move(inner)) {}
  ~FencedOperations() override { finish(); }

  void start() override { passes_.push_back(inner_->take_expert_bytes()); }
  void finish_first() override {
    close();
    if (passes_.empty()) return;
    expert_bytes_ += passes_.front();
    passes_.erase(passes_.begin());
  }
  void finish() override {
    close();
    for (const uint64_t bytes : passes_) expert_bytes_ += bytes;
    passes_.clear();
    expert_bytes_ += inner_->take_expert_bytes();
  }
  void discard() noexcept override {
    inner_->discard();
    finish();
  }
  void upload(std::span<const float> from, float* to) override {
    run([&] { inner_->upload(from, to); });
  }
  void download(const std::byte* from, std::span<std::byte> to) override {
    run([&] { inner_->download(from, to); });
  }

  void embed(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& x) override {
    run([&] { inner_->embed(matrix, ids, scale, x); });
  }
  void add_embeddings(const PackedMatrix& matrix, std::span<const int32_t> ids, float scale, const Rows& scratch,
                      const Rows& x) override {
    run([&] { inner_->add_embeddings(matrix, ids, scale, scratch, x); });
  }
  void normalize(const Rows& x, const NormView& norm, const Target& target, int rows) override {
    run([&] { inner_->normalize(x, norm, target, rows); });
  }
  void normalize(const Rows& x, const HeadNorm& norm, const Target& target, int rows) override {
    run([&] { inner_->normalize(x, norm, target, rows); });
  }
  void add(const Rows& x, float scale, const Rows& to, int rows) override {
    run([&] { inner_->add(x, scale, to, rows); });
  }
  void add_gated(const Rows& x, const Rows& gate, float scale, const Rows& to, int rows) override {
    run([&] { inner_->add_gated(x, gate, scale, to, rows); });
  }
  void scale(const Rows& x, float by, int rows) override {
    run([&] { inner_->scale(x, by, rows); });
  }
  void cut_below(const Rows& x, float deviations, int rows) override {
    run([&] { inner_->cut_below(x, deviations, rows); });
  }
  void match_magnitude(const Rows& x, const Rows& like, int rows) override {
    run([&] { inner_->match_magnitude(x, like, rows); });
  }
  void combine(std::span<const Rows> x, const Rows& coefficients, const Target& target, int rows) override {
    run([&] { inner_->combine(x, coefficients, target, rows); });
  }
  void tanh(const Rows& x, int rows) override {
    run([&] { inner_->tanh(x, rows); });
  }
  void soft_cap(const Rows& x, float cap, int rows) override {
    run([&] { inner_->soft_cap(x, cap, rows); });
  }
  void copy(const Rows& x, const Rows& to, int rows) override {
    run([&] { inner_->copy(x, to, rows); });
  }
  void gather(const Rows& x, std::span<const int32_t> rows, const Rows& to) override {
    run([&] { inner_->gather(x, rows, to); });
  }
  void copy_heads(const Rows& x, const HeadColumns& columns, const Rows& y, int rows) override {
    run([&] { inner_->copy_heads(x, columns, y, rows); });
  }
  void multiply_gate(const Rows& y, const Rows& gate, Nonlinearity f, int rows) override {
    run([&] { inner_->multiply_gate(y, gate, f, rows); });
  }

  Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                 std::optional<Activations> as) override {
    return run([&] { return inner_->prepare(x, norm, rows, linears, as); });
  }
  void project(const Inputs& x, std::span<const Projection> list, int rows) override {
    run([&] { inner_->project(x, list, rows); });
  }
  void project_heads(const HeadProjections& heads, int rows) override {
    run([&] { inner_->project_heads(heads, rows); });
  }

  void rotations(std::span<const RotationSpan> spans, const Rows& to) override {
    run([&] { inner_->rotations(spans, to); });
  }
  void position_and_store(const PositionArgs& args, std::span<const AttentionSpan> spans, int rows) override {
    run([&] { inner_->position_and_store(args, spans, rows); });
  }
  void attend(const AttentionSpec& spec, std::span<const AttentionSpan> spans) override {
    run([&] { inner_->attend(spec, spans); });
  }

  void route(const RouteArgs& args, int rows) override {
    run([&] { inner_->route(args, rows); });
  }
  void run_experts(const ExpertArgs& args, int rows) override {
    if (!args.source) return run([&] { inner_->run_experts(args, rows); });
    finish();  // the source writes to memory meanwhile
    const FencedBackend::Opening opening(backend_);
    inner_->run_experts(args, rows);
  }
  void observe_inputs(InputObserver* observer) override { inner_->observe_inputs(observer); }
  uint64_t take_expert_bytes() override { return std::exchange(expert_bytes_, 0); }

  void convolve(const LayerStates& states, const Convolution& args, std::span<const StateSpan> spans) override {
    run([&] { inner_->convolve(states, args, spans); });
  }
  void delta_rule(const LayerStates& states, const DeltaRule& args, std::span<const StateSpan> spans,
                  int rows) override {
    run([&] { inner_->delta_rule(states, args, spans, rows); });
  }
  void state_space(const LayerStates& states, const StateSpace& args, std::span<const StateSpan> spans,
                   int rows) override {
    run([&] { inner_->state_space(states, args, spans, rows); });
  }
  std::byte* pick(const Rows& x, std::span<const Pick> picks) override {
    return run([&] { return inner_->pick(x, picks); });
  }
  void embed_picked(const PackedMatrix& matrix, std::span<const int32_t> rows, float scale, const Rows& x) override {
    run([&] { inner_->embed_picked(matrix, rows, scale, x); });
  }

 private:
  void close() {
    opening_.reset();
    if (std::exchange(running_, false)) --backend_.unfinished;
  }
  template <class F>
  std::invoke_result_t<F> run(const F& operation) {
    if (!std::exchange(running_, true)) ++backend_.unfinished;
    if (!opening_) opening_.emplace(backend_);
    const Closing closing{*this};
    return operation();
  }
  struct Closing {
    FencedOperations& of;
    ~Closing() {
      if (++of.count_ % of.backend_.close_after == 0) of.opening_.reset();
    }
  };

  FencedBackend& backend_;
  const std::unique_ptr<Operations> inner_;
  bool running_ = false;  // as far as the caller may know
  std::optional<FencedBackend::Opening> opening_;
  unsigned count_ = 0;
  std::vector<uint64_t> passes_;  // bytes of experts that each has read: those that were started
  uint64_t expert_bytes_ = 0;
};

}  // namespace

FencedBackend::FencedBackend(CpuBackend& cpu, unsigned close_after)
    : close_after(close_after),
      cpu_(cpu),
      begin_(static_cast<std::byte*>(
          ::mmap(nullptr, kMapping, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (begin_ == MAP_FAILED) throw no_resource("cannot reserve address space for the fenced backend");
  ::madvise(begin_, kMapping, MADV_HUGEPAGE);  // changing the access of many small pages takes long
}

FencedBackend::~FencedBackend() { ::munmap(begin_, kMapping); }

std::unique_ptr<Operations> FencedBackend::operations(Activations activations, const OperationLimits& limits) {
  return std::make_unique<FencedOperations>(*this, cpu_.operations(activations, limits));
}

std::byte* FencedBackend::allocate(size_t bytes) {
  const size_t whole = whole_lines(bytes);
  const std::lock_guard lock(mutex_);
  if (const auto range = free_ranges_.find(whole); range != free_ranges_.end()) {
    std::byte* const memory = range->second;
    free_ranges_.erase(range);
    return memory;
  }
  if (whole > kMapping - used_) throw no_resource("the fenced backend has no address space left");
  std::byte* const memory = begin_ + used_;
  used_ += whole;
  if (openings_ > 0) protect(true);
  return memory;
}

void FencedBackend::free(std::byte* memory, size_t bytes) {
  const Opening opening(*this);
  const std::lock_guard lock(mutex_);
  clear(memory, whole_lines(bytes));
  free_ranges_.emplace(whole_lines(bytes), memory);
}

void FencedBackend::write(std::byte* to, size_t bytes, const Fill& fill) {
  check_finished();
  std::vector<std::byte> host(bytes);
  fill(host);
  const Opening opening(*this);
  std::memcpy(to, host.data(), bytes);
}

std::span<std::byte> FencedBackend::view(std::byte* from, size_t bytes, HostCopy& copy) {
  check_finished();
  const std::span<std::byte> to = copy.room(*this, bytes);
  const Opening opening(*this);
  std::memcpy(to.data(), from, bytes);
  return to;
}

void FencedBackend::upload(std::span<const std::byte> from, std::byte* to) {
  const Opening opening(*this);
  std::memcpy(to, from.data(), from.size());
}

void FencedBackend::read(std::byte* from, std::span<std::byte> to) {
  const Opening opening(*this);
  std::memcpy(to.data(), from, to.size());
}

void FencedBackend::copy(std::byte* to, const std::byte* from, size_t bytes) {
  const Opening opening(*this);
  std::memcpy(to, from, bytes);
}

void FencedBackend::take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) {
  check_finished();
  const Opening opening(*this);
  cpu_.take_rows(from, rows, to);
}

void FencedBackend::protect(bool accessible) {
  const size_t pages = (used_ + kPage - 1) / kPage * kPage;
  if (pages == 0 || ::mprotect(begin_, pages, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
  std::fputs("the fenced backend cannot change the access to its memory\n", stderr);
  std::abort();
}

void FencedBackend::check_finished() const {
  if (unfinished == 0) return;
  std::fputs("memory of the backend is used before its operations have finished\n", stderr);
  std::abort();
}

FencedBackend::Opening::Opening(FencedBackend& backend) : backend_(backend) {
  const std::lock_guard lock(backend_.mutex_);
  if (backend_.openings_++ == 0) backend_.protect(true);
}

FencedBackend::Opening::~Opening() {
  const std::lock_guard lock(backend_.mutex_);
  if (--backend_.openings_ == 0) backend_.protect(false);
}

}  // namespace quire::testing
