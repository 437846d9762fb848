// All kernel sets that tests can run here: those of this machine and, with AVX-512, "amx" on emulated tiles.
#pragma once

#include <vector>

#include "base/cpu.h"
#include "kernels/kernels.h"

namespace quire::testing {

const KernelSet& emulated_amx_kernels();

inline std::vector<const KernelSet*> testable_kernels() {
  std::vector<const KernelSet*> sets(available_kernels().begin(), available_kernels().end());
  if (cpu_features().avx512) sets.push_back(&emulated_amx_kernels());
  return sets;
}

}  // namespace quire::testing
