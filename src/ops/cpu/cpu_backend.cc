#include "ops/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include "kernels/packing_version.h"
#include "kernels/take_rows.h"
#include "ops/cpu/cpu_operations.h"

namespace quire {
namespace {

// Smaller memory comes from the heap: a LargeBuffer takes whole huge pages.
constexpr size_t kLeastLarge = size_t{1} << 20;

}  // namespace

CpuBackend::CpuBackend(std::string_view kernels, Team& team, const Tuning* tuning)
    : CpuBackend(choose_kernels(kernels), team, tuning) {}

Activations CpuBackend::default_activations_of(std::string_view kernels) {
  return choose_kernels(kernels).default_activations;
}

std::string_view CpuBackend::name() const { return kernels_.name; }

Activations CpuBackend::default_activations() const { return kernels_.default_activations; }

int CpuBackend::packing_version() const { return kPackingVersion; }

std::unique_ptr<Operations> CpuBackend::operations(Activations activations, const OperationLimits& limits) {
  return std::make_unique<CpuOperations>(compute(activations), limits);
}

size_t CpuBackend::operations_bytes(const OperationLimits& limits) const {
  return CpuOperations::memory_bytes(team_.size(), limits);
}

OperationsBytes CpuBackend::operations_bytes_with(int threads) {
  return [threads](const OperationLimits& limits) { return CpuOperations::memory_bytes(threads, limits); };
}

std::byte* CpuBackend::allocate(size_t bytes) {
  if (bytes >= kLeastLarge) return LargeBuffer(bytes).release();
  const size_t whole = (bytes + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, whole));
  if (!memory) throw no_resource("cannot allocate {} bytes of memory", bytes);
  std::memset(memory, 0, whole);
  return memory;
}

void CpuBackend::free(std::byte* memory, size_t bytes) {
  if (bytes >= kLeastLarge) {
    LargeBuffer::adopt(memory, bytes);  // and drop
  } else {
    std::free(memory);
  }
}

void CpuBackend::copy(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

void CpuBackend::take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) {
  const int panels = (static_cast<int>(rows.size()) + kPanel - 1) / kPanel;
  team_.for_tiles(panels, [&](int panel, int) { quire::take_rows(from, rows, to, panel, panel + 1); });
}

}  // namespace quire
