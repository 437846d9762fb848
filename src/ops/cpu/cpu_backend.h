// The backend of this machine's processor: memory of this process, kernels of an instruction set, a team of threads.
#pragma once

#include "ops/backend.h"
#include "ops/cpu/compute.h"

namespace quire {

// Operations have been done when their calls return.
class CpuBackend final : public Backend {
 public:
  // All arguments must outlive it. tuning: the loops to use, for all models; nullptr: the kernel set's own.
  CpuBackend(const KernelSet& kernels, Team& team, const Tuning* tuning = nullptr)
      : kernels_(kernels), team_(team), tuning_(tuning) {}
  // One rank's: with the kernels and the tuning of `like`. Its operations share their work with the other ranks'.
  CpuBackend(const CpuBackend& like, Team& team, Communicator& ranks)
      : kernels_(like.kernels_), team_(team), tuning_(like.tuning_), ranks_(&ranks) {}
  // One stage's: on a team of its own.
  CpuBackend(const CpuBackend& like, Team& team) : kernels_(like.kernels_), team_(team), tuning_(like.tuning_) {}
  // kernels: as choose_kernels() takes them. Throws Error: the CPU lacks them, or there are none of this name.
  CpuBackend(std::string_view kernels, Team& team, const Tuning* tuning = nullptr);
  static Activations default_activations_of(std::string_view kernels);

  std::string_view name() const override;
  Activations default_activations() const override;
  std::optional<size_t> own_memory() const override { return {}; }
  bool reads_experts() const override { return true; }
  bool folds_low_rank() const override { return true; }
  int packing_version() const override;
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;
  size_t operations_bytes(const OperationLimits& limits) const override;
  // What the functions of this folder take.
  Compute compute(Activations activations) const { return {kernels_, team_, activations, tuning_, nullptr, ranks_}; }
  // What operations allocate on so many threads.
  static OperationsBytes operations_bytes_with(int threads);

  std::byte* allocate(size_t bytes) override;
  void free(std::byte* memory, size_t bytes) override;
  const std::byte* share(std::span<const std::byte> host) override { return host.data(); }
  void write(std::byte* to, size_t bytes, const Fill& fill) override { fill({to, bytes}); }
  std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy&) override { return {from, bytes}; }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) override;

 private:
  const KernelSet& kernels_;
  Team& team_;
  const Tuning* tuning_;
  Communicator* ranks_ = nullptr;
};

}  // namespace quire
