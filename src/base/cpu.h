// What this machine is and how much of it we may use.
#pragma once

#include <cstddef>
#include <string>

namespace quire {

struct CpuFeatures {
  bool avx2 = false;      // with FMA and F16C
  bool avx_vnni = false;  // and AVX2
  bool avx512 = false;    // F, BW, VL, DQ and VNNI
  bool avx512_bf16 = false;
  bool amx = false;  // AVX-512 and tiles for int8 and bf16, which the system saves
};
CpuFeatures cpu_features();

// Asks the system to let all threads of this process use the tile registers; false where it refuses. To be called
// before the first tile instruction: without it, that one ends the process.
bool permit_tiles();

std::string cpu_name();

// Threads worth starting: physical cores this process may run on (affinity), not more than the cgroup's CPU quota, at
// least 1.
int usable_cores();

// Bytes of memory this process may still take: what is free on the machine or in its cgroup, whichever is less.
size_t available_memory();

}  // namespace quire
