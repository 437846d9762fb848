#include "cuda/cuda_backend.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/cuda_operations.h"
#include "cuda/linear/inputs.h"
#include "cuda/linear/linear_fp8.h"
#include "cuda/linear/measure_variants.h"
#include "cuda/probe.h"
#include "cuda/ranks/cuda_ranks.h"
#include "kernels/packing_version.h"
#include "kernels/take_rows.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

// Larger pieces go through it one after the other.
constexpr size_t kStaging = size_t{8} << 20;
// Increase this when kernels of linears change: choices of older ones are measured again.
constexpr int kKernelsVersion = 1;

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<Device> device, bool graphs)
    : device_(std::move(device)), graphs_(graphs), staging_(device_->allocate_host(kStaging)) {}

CudaBackend::~CudaBackend() { device_->free_host(staging_); }

int CudaBackend::packing_version() const { return kPackingVersion; }

std::unique_ptr<Operations> CudaBackend::operations(Activations activations, const OperationLimits& limits) {
  return operations(activations, limits, {});
}

std::unique_ptr<Operations> CudaBackend::operations(Activations activations, const OperationLimits& limits,
                                                    const RankLink& ranks) {
  if (!has_input_form(activations))
    throw Error(ErrorKind::kUnsupported,
                "--activations int8x2 is not supported with --device cuda; use bf16, f32, int8 or fp8");
  const DeviceFacts& facts = device_->facts();
  if (activations == Activations::kFp8 && !has_fp8_products(facts))
    throw Error(ErrorKind::kUnsupported, "--activations fp8 needs a GPU of compute capability 9.0, and " + facts.name +
                                             " has " + std::to_string(facts.major) + "." + std::to_string(facts.minor) +
                                             "; use bf16");
  return std::make_unique<CudaOperations>(*device_, graphs_, activations, limits, ranks, &variants_);
}

size_t CudaBackend::operations_bytes(const OperationLimits& limits) const {
  return CudaOperations::memory_bytes(limits);
}

std::unique_ptr<DeviceRanks> CudaBackend::connect(std::span<Backend* const> ranks) {
  std::vector<CudaBackend*> backends;
  for (Backend* rank : ranks) {
    assert(rank->name() == name());
    backends.push_back(static_cast<CudaBackend*>(rank));
  }
  return connect_ranks(backends);
}

std::string CudaBackend::tuned_as() const {
  return device_->facts().emulated ? std::string()
                                   : device_->facts().name + ", kernels " + std::to_string(kKernelsVersion);
}

Backend::KernelChoices CudaBackend::tune(std::span<const TunedProjection> projections, Activations activations,
                                         int rows, const KernelChoices& known,
                                         const std::function<void(size_t, size_t)>& report) {
  return measure_variants(*device_, variants_, projections, activations, rows, known, report);
}

std::optional<BackendRates> CudaBackend::measure_rates() {
  if (device_->facts().emulated) return {};  // it is the processor that computes, and would take hours to show it
  return cuda::measure_rates(*device_);
}

std::byte* CudaBackend::allocate(size_t bytes) { return device_->allocate(bytes); }

void CudaBackend::free(std::byte* memory, size_t) { device_->free(memory); }

void CudaBackend::write(std::byte* to, size_t bytes, const Fill& fill) {
  std::vector<std::byte> host(bytes);
  fill(host);
  const std::lock_guard lock(staging_mutex_);
  for (size_t at = 0; at < bytes; at += kStaging) {
    const size_t part = std::min(kStaging, bytes - at);
    std::memcpy(staging_, host.data() + at, part);
    device_->upload(to + at, staging_, part);
  }
}

std::byte* CudaBackend::allocate_host(size_t bytes) {
  return bytes < kLeastPinned ? Backend::allocate_host(bytes) : device_->allocate_host(bytes);
}
void CudaBackend::free_host(std::byte* memory, size_t bytes) {
  bytes < kLeastPinned ? Backend::free_host(memory, bytes) : device_->free_host(memory);
}

std::span<std::byte> CudaBackend::view(std::byte* from, size_t bytes, HostCopy& copy) {
  const std::span<std::byte> to = copy.room(*this, bytes);
  device_->download(to.data(), from, bytes);
  return to;
}

void CudaBackend::upload(std::span<const std::byte> from, std::byte* to) {
  device_->upload(to, from.data(), from.size());
}

void CudaBackend::read(std::byte* from, std::span<std::byte> to) { device_->download(to.data(), from, to.size()); }

void CudaBackend::copy(std::byte* to, const std::byte* from, size_t bytes) { device_->copy(to, from, bytes); }

void CudaBackend::take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) {
  HostCopy all;
  PackedMatrix host = from;
  host.data = view(const_cast<std::byte*>(from.data), from.bytes(), all).data();
  const PackedMatrix taken = describe_packed(from.format, from.factor, static_cast<int>(rows.size()), from.cols);
  write(to, taken.bytes(),
        [&](std::span<std::byte> bytes) { quire::take_rows(host, rows, bytes.data(), 0, taken.panels()); });
}

}  // namespace quire::cuda
