// The alphabet (alphabet/alphabet.h) on an NVIDIA GPU, compute capability 8.0 and later.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#define DEVICE __device__ __forceinline__

namespace quire::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpgroups = true;
#else
inline constexpr bool kHasWarpgroups = false;
#endif

// ---- Where a thread is

DEVICE int thread() { return static_cast<int>(threadIdx.x); }
DEVICE int threads() { return static_cast<int>(blockDim.x); }
DEVICE int lane() { return static_cast<int>(threadIdx.x % 32); }
DEVICE int warp() { return static_cast<int>(threadIdx.x / 32); }
DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
DEVICE int block_z() { return static_cast<int>(blockIdx.z); }
DEVICE int blocks_x() { return static_cast<int>(gridDim.x); }
DEVICE int blocks_y() { return static_cast<int>(gridDim.y); }
DEVICE int blocks_z() { return static_cast<int>(gridDim.z); }

// ---- Memory

template <class T>
using Global = T*;
template <class T>
using Shared = T*;

template <class T>
const std::byte* address_of(const T* p) {
  return reinterpret_cast<const std::byte*>(p);
}

template <class U, class T>
DEVICE U* cast(T* p) {
  return reinterpret_cast<U*>(p);
}

template <class T>
DEVICE T* shared(size_t offset) {
  extern __shared__ __align__(1024) unsigned char quire_shared[];
  return reinterpret_cast<T*>(quire_shared + offset);
}

template <int N>
struct alignas(4 * N) Words {
  uint32_t w[N];
};

template <int N, class T>
DEVICE Words<N> load(const T* p) {
  return *reinterpret_cast<const Words<N>*>(p);
}

template <int N, class T>
DEVICE Words<N> load_once(const T* p) {
  Words<N> v;
  if constexpr (N == 1) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v.w[0]) : "l"(p));
  } else if constexpr (N == 2) {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(v.w[0]), "=r"(v.w[1]) : "l"(p));
  } else {
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
                 : "l"(p));
  }
  return v;
}

template <class T>
DEVICE void prefetch(const T* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

template <int N, class T>
DEVICE void store(T* p, Words<N> v) {
  *reinterpret_cast<Words<N>*>(p) = v;
}

template <class T>
DEVICE uint32_t shared_address(const T* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- Barriers

DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __syncwarp(); }
DEVICE void sync_part(int id, int count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
DEVICE void start_next() { asm volatile("griddepcontrol.launch_dependents;"); }
DEVICE void wait_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
DEVICE void start_next() {}
DEVICE void wait_previous() {}
#endif

// ---- Warps

inline constexpr uint32_t kAllLanes = 0xFFFFFFFF;
template <class T>
DEVICE T shuffle(T v, int from) {
  return __shfl_sync(kAllLanes, v, from);
}
template <class T>
DEVICE T shuffle_xor(T v, int mask) {
  return __shfl_xor_sync(kAllLanes, v, mask);
}
template <class T>
DEVICE T shuffle_up(T v, int by) {
  return __shfl_up_sync(kAllLanes, v, static_cast<unsigned>(by));
}
template <class T>
DEVICE T shuffle_down(T v, int by) {
  return __shfl_down_sync(kAllLanes, v, static_cast<unsigned>(by));
}
DEVICE uint32_t ballot(bool v) { return __ballot_sync(kAllLanes, v); }

// ---- Asynchronous copies

template <int Bytes, class T, class U>
DEVICE void copy_async(T* to, const U* from, bool valid = true) {
  const int read = valid ? Bytes : 0;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes),
                 "r"(read)
                 : "memory");
  }
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- Matrices

DEVICE void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void multiply_i8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int N, class T>
DEVICE void load_matrices(uint32_t (&r)[N], const T* row) {
  const uint32_t at = shared_address(row);
  if constexpr (N == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  } else if constexpr (N == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  }
}
template <int N, class T>
DEVICE void load_matrices_transposed(uint32_t (&r)[N], const T* row) {
  const uint32_t at = shared_address(row);
  if constexpr (N == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
  } else if constexpr (N == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  }
}

// ---- Numbers

DEVICE float bits_float(uint32_t v) { return __uint_as_float(v); }
DEVICE uint32_t float_bits(float v) { return __float_as_uint(v); }

DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE float low_bf16(uint32_t v) { return bits_float(v << 16); }
DEVICE float high_bf16(uint32_t v) { return bits_float(v & 0xFFFF0000u); }
DEVICE float low_f16(uint32_t v) { return __half2float(__ushort_as_half(static_cast<uint16_t>(v))); }
DEVICE float high_f16(uint32_t v) { return __half2float(__ushort_as_half(static_cast<uint16_t>(v >> 16))); }
DEVICE uint32_t subtract_bf16(uint32_t a, uint32_t b) {
  // a * 1 - b, in one instruction on every architecture.
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x3F803F80u), "r"(b ^ 0x80008000u));
  return d;
}
DEVICE float e4m3(uint8_t v) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(v, __NV_E4M3);
  return __half2float(__half(half));
}
DEVICE uint32_t pack_e4m3(float x0, float x1, float x2, float x3) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(x0, x1), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(x2, x3), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}
DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) { return __byte_perm(a, b, selector); }

DEVICE float fma_of(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float exp_of(float x) { return expf(x); }
DEVICE float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float log_of(float x) { return logf(x); }
DEVICE float tanh_of(float x) { return tanhf(x); }
DEVICE float sqrt_of(float x) { return __fsqrt_rn(x); }
DEVICE float erf_of(float x) { return erff(x); }
DEVICE float max_of(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
DEVICE float min_of(float a, float b) {
  float d;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

}  // namespace quire::cuda

#include "cuda/alphabet/gpu_clusters.h"
#include "cuda/alphabet/gpu_warpgroups.h"
