// Products of warpgroups (alphabet/alphabet.h): wgmma of sm_90a.
#pragma once

#include <cstdint>
#include <utility>

namespace quire::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
DEVICE void fence_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <int N>
DEVICE void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
DEVICE void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
#else  // compiled, and never run
DEVICE void fence_products() {}
DEVICE void commit_products() {}
template <int N>
DEVICE void wait_products() {}
DEVICE void fence_shared() {}
template <int N>
DEVICE void raise_registers() {}
template <int N>
DEVICE void lower_registers() {}
#endif

template <int N>
DEVICE void hold_products(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
DEVICE void hold_products(int32_t (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(d[i])::"memory");
}

template <class T>
DEVICE uint64_t product_rows(const T* p) {
  // Start address / 16; stride of 8 rows / 16 in bits 32 to 45; 128-byte swizzle: 1 in bits 62 to 63.
  const uint64_t at = (shared_address(p) & 0x3FFFF) >> 4;
  return at | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

}  // namespace quire::cuda

#include "cuda/alphabet/gpu_wgmma.inc.h"
