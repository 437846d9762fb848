#include "base/cpu.h"

#include <hwloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/cgroup.h"

namespace quire {

CpuFeatures cpu_features() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;  // clang lacks "f16c"
  f.avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
  constexpr unsigned kTiles = 1u << 24 | 1u << 22 | 1u << 25;  // AMX-TILE, AMX-BF16, AMX-INT8
  if (f.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) == kTiles) {
    // XCR0: does the system save the tiles' configuration (17) and data (18)? xgetbv exists because AVX-512 needs it.
    unsigned low = 0, high = 0;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    f.amx = (low >> 17 & 3) == 3;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    f.avx_vnni = f.avx2 && (a >> 4 & 1) != 0;
    f.avx512_bf16 = f.avx512 && (a >> 5 & 1) != 0;
  }
#endif
  return f;
}

bool permit_tiles() {
#if defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM (Linux 5.16), XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

namespace {

// The first value of this key in /proc/cpuinfo.
std::optional<std::string> cpu_field(std::string_view key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const size_t colon = line.find(": "); line.starts_with(key) && colon != line.npos)
      return line.substr(colon + 2);
  }
  return std::nullopt;
}

}  // namespace

std::string cpu_microcode() { return cpu_field("microcode").value_or(""); }

std::string cpu_name() {
  if (std::optional<std::string> name = cpu_field("model name")) return *std::move(name);
  return "unknown CPU";
}

namespace {

// What the system says of this machine, of which hwloc shows only what this process may use; null: nothing.
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {nullptr, hwloc_topology_destroy};
  Topology owner(topology, hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) owner.reset();
  return owner;
}

}  // namespace

int usable_cores() {
  const Topology topology = load_topology();
  int cores = topology ? hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE) : 0;
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = cgroup_limits().cores;
  if (quota < cores) cores = static_cast<int>(std::ceil(quota));
  return std::max(1, cores);
}

size_t last_cache_bytes() {
  const Topology topology = load_topology();
  for (const hwloc_obj_type_t level : {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    const hwloc_obj_t cache = topology ? hwloc_get_obj_by_type(topology.get(), level, 0) : nullptr;
    if (cache) return cache->attr->cache.size;
  }
  return 0;
}

size_t available_memory() {
  size_t available = std::numeric_limits<size_t>::max();
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) available = std::stoull(line.substr(13)) * 1024;
  }
  return std::min(available, cgroup_limits().memory);
}

}  // namespace quire
