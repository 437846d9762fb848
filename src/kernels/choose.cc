#include <array>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/kernels.h"

namespace quire {
namespace {

// Worst first.
struct Available {
  std::array<const KernelSet*, 6> sets{};
  size_t count = 0;
};

const Available& available() {
  static const Available found = [] {
    Available a;
    const CpuFeatures cpu = cpu_features();
    a.sets[a.count++] = &reference_kernels();
    if (cpu.avx2 && avx2_kernels()) a.sets[a.count++] = avx2_kernels();
    if (cpu.avx_vnni && avx2vnni_kernels()) a.sets[a.count++] = avx2vnni_kernels();
    if (cpu.avx512 && avx512_kernels()) a.sets[a.count++] = avx512_kernels();
    if (cpu.avx512_bf16 && avx512bf16_kernels()) a.sets[a.count++] = avx512bf16_kernels();
    if (cpu.amx && amx_kernels() && permit_tiles()) a.sets[a.count++] = amx_kernels();
    return a;
  }();
  return found;
}

}  // namespace

std::span<const KernelSet* const> available_kernels() { return {available().sets.data(), available().count}; }

const KernelSet& choose_kernels(std::string_view name) {
  const auto sets = available_kernels();
  if (name.empty() || name == "auto") return *sets.back();
  std::string names;
  for (const KernelSet* set : sets) {
    if (set->name == name) return *set;
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  throw invalid("kernels '{}': this machine runs {}", name, names);
}

}  // namespace quire
