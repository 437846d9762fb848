// This machine's processor, and how much of the machine this process may use.
#pragma once

#include <cstddef>
#include <string>

namespace quire {

struct CpuFeatures {
  bool avx2 = false;      // with FMA and F16C
  bool avx_vnni = false;  // with AVX2
  bool avx512 = false;    // F, BW, VL, DQ and VNNI
  bool avx512_bf16 = false;
  bool amx = false;  // with AVX-512: tiles for int8 and bf16, saved by the operating system
};
CpuFeatures cpu_features();

// Asks the operating system to let all threads of this process use the tile registers; false if it refuses. Call it
// before the first tile instruction, which otherwise kills the process.
bool permit_tiles();

std::string cpu_name();
std::string cpu_microcode();  // its revision, as the system names it; empty if it does not

// How many threads to start: the physical cores this process may run on (affinity), limited by the cgroup's CPU quota;
// at least 1.
int usable_cores();

// The size of a cache of the last level, not the sum over all; 0: the system does not say.
size_t last_cache_bytes();

// Bytes of memory this process may still allocate: the minimum of what its machine and its cgroup have available.
size_t available_memory();

}  // namespace quire
