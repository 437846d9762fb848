// A kernel with its arguments and its shape, ready to run.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "cuda/alphabet/alphabet.h"

namespace quire::cuda {

struct LaunchShape {
  int x = 1, y = 1, z = 1;  // blocks
  int threads = 1;          // of a block
  int shared_bytes = 0;
  int cluster = 1;  // so many blocks, consecutive in x, run together and reach each other's shared memory
  bool operator==(const LaunchShape&) const = default;
};

// How a device starts a kernel of one type.
struct KernelEntry {
  const char* name;
  // On a GPU the address of a __global__ function; on the emulated device of a function that does what one thread does.
  const void* function;
  size_t bytes;  // of the kernel's value
  int threads;   // the most that a block may have
  bool waits;    // it has kWaits
};

struct Launch {
  static constexpr size_t kMostBytes = 640;

  const KernelEntry* entry = nullptr;
  LaunchShape shape;
  alignas(64) std::array<std::byte, kMostBytes> kernel{};

  bool operator==(const Launch& other) const {
    return entry == other.entry && shape == other.shape &&
           std::memcmp(kernel.data(), other.kernel.data(), entry->bytes) == 0;
  }
};

template <class Kernel>
constexpr bool waits_itself() {
  if constexpr (requires { Kernel::kWaits; }) {
    return true;
  } else {
    return false;
  }
}

#if defined(__CUDACC__)
template <class Kernel>
constexpr int least_blocks() {
  if constexpr (requires { Kernel::kBlocks; }) {
    return Kernel::kBlocks;
  } else {
    return 1;
  }
}
// The next launch may start while this one runs (programmatic dependent launch). A kernel with kWaits calls wait_previous()
// itself, once it has done what needs no results of the launches before: reading weights. For all others it is done here.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, least_blocks<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
  start_next();
  if constexpr (!requires { Kernel::kWaits; }) wait_previous();
  kernel();
}
template <class Kernel>
const void* kernel_function() {
  return reinterpret_cast<const void*>(&run_kernel<Kernel>);
}
#else
template <class Kernel>
void run_kernel(const std::byte* kernel) {
  (*reinterpret_cast<const Kernel*>(kernel))();
}
template <class Kernel>
const void* kernel_function() {
  return reinterpret_cast<const void*>(&run_kernel<Kernel>);
}
#endif

template <class Kernel>
Launch make_launch(const LaunchShape& shape, const Kernel& kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel> && sizeof(Kernel) <= Launch::kMostBytes);
  static const KernelEntry entry{Kernel::kName, kernel_function<Kernel>(), sizeof(Kernel), Kernel::kThreads,
                                 waits_itself<Kernel>()};
  Launch launch{&entry, shape};
  std::memcpy(launch.kernel.data(), &kernel, sizeof kernel);
  return launch;
}

}  // namespace quire::cuda
