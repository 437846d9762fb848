// All kernel sets that tests can run here: those of this machine, and avx2vnni with its one instruction emulated. unit_amx runs the
// tests of tiles on every machine with AVX-512 (unit/amx/trap.h).
#pragma once

#include <vector>

#include "base/cpu.h"
#include "kernels/kernels.h"

namespace quire::testing {

// Needs AVX2.
const KernelSet& emulated_avx2vnni_kernels();

inline std::vector<const KernelSet*> testable_kernels() {
  std::vector<const KernelSet*> sets(available_kernels().begin(), available_kernels().end());
#if defined(__x86_64__)
  if (cpu_features().avx2) sets.push_back(&emulated_avx2vnni_kernels());
#endif
  return sets;
}

}  // namespace quire::testing
