// The backend of an NVIDIA GPU, or of the emulated one: memory of a device, and the operations that kernels run there.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "cuda/linear/linear_variant.h"
#include "cuda/ranks/rank_gather.h"
#include "ops/backend.h"

namespace quire::cuda {

// Matrices are packed as the CPU packs them (kernels/packed.h), and pages of the cache have the CPU's layout.
class CudaBackend final : public Backend {
 public:
  // graphs: whether steps that repeat are run as graphs of the device.
  explicit CudaBackend(std::unique_ptr<Device> device, bool graphs = true);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  Activations default_activations() const override { return Activations::kBf16; }
  std::optional<size_t> own_memory() const override { return device_->free_memory(); }
  bool picks_logits() const override { return true; }
  int packing_version() const override;
  // Throws Error (kUnsupported): activations are int8x2.
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;
  // Those of a rank among several.
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits, const RankLink& ranks);
  size_t operations_bytes(const OperationLimits& limits) const override;
  std::unique_ptr<DeviceRanks> connect(std::span<Backend* const> ranks) override;
  std::string tuned_as() const override;  // empty on the emulated device
  KernelChoices tune(std::span<const TunedProjection> projections, Activations activations, int rows,
                     const KernelChoices& known, const std::function<void(size_t, size_t)>& report) override;
  std::optional<BackendRates> measure_rates() override;

  std::byte* allocate(size_t bytes) override;
  void free(std::byte* memory, size_t bytes) override;
  const std::byte* share(std::span<const std::byte>) override { return nullptr; }
  void write(std::byte* to, size_t bytes, const Fill& fill) override;
  std::byte* allocate_host(size_t bytes) override;
  void free_host(std::byte* memory, size_t bytes) override;
  std::span<std::byte> view(std::byte* from, size_t bytes, HostCopy& copy) override;
  void upload(std::span<const std::byte> from, std::byte* to) override;
  void read(std::byte* from, std::span<std::byte> to) override;
  bool pin(std::span<std::byte> host) override { return device_->pin(host.data(), host.size()); }
  void unpin(std::span<std::byte> host) override { device_->unpin(host.data()); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) override;

  Device& device() { return *device_; }

 private:
  const std::unique_ptr<Device> device_;
  const bool graphs_;
  VariantTable variants_;
  std::mutex staging_mutex_;
  std::byte* staging_ = nullptr;  // [kStaging]
};

}  // namespace quire::cuda
