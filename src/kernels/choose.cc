#include <array>
#include <string>

#include "base/cpu.h"
#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels/self_check.h"

namespace quire {
namespace {

// Slowest first.
struct Available {
  std::array<const KernelSet*, 6> sets{};
  size_t count = 0;
};

const Available& available() {
  static const Available found = [] {
    Available a;
    const CpuFeatures cpu = cpu_features();
    a.sets[a.count++] = &reference_kernels();
    const auto add = [&](bool runs, const KernelSet* (*of_set)()) {
      const KernelSet* set = runs ? of_set() : nullptr;
      if (set && gives_defined_bits(*set)) a.sets[a.count++] = set;
    };
    add(cpu.avx2, avx2_kernels);
    add(cpu.avx_vnni, avx2vnni_kernels);
    add(cpu.avx512, avx512_kernels);
    add(cpu.avx512_bf16, avx512bf16_kernels);
    add(cpu.amx && permit_tiles(), amx_kernels);
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
  throw invalid("kernels '{}' cannot run on this machine; it can run {}", name, names);
}

#if !defined(__x86_64__)  // kernels/x86 is not compiled (CMakeLists.txt)
const KernelSet* avx2_kernels() { return nullptr; }
const KernelSet* avx2vnni_kernels() { return nullptr; }
const KernelSet* avx512_kernels() { return nullptr; }
const KernelSet* avx512bf16_kernels() { return nullptr; }
const KernelSet* amx_kernels() { return nullptr; }
#endif

}  // namespace quire
