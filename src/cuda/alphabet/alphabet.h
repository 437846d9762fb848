// The alphabet that kernels are written in: C++20 over what a GPU offers beyond it. nvcc compiles kernels for the GPU
// (alphabet/gpu.h); the host's compiler compiles the same text for an emulated device (alphabet/emulated.h), which
// checks what a GPU does not.
//
// A kernel is a value: its members are its arguments, its operator() is what each thread does, and kThreads is the most
// threads that a block may have:
//
//   struct Scale {
//     static constexpr const char* kName = "scale";
//     static constexpr int kThreads = 256;
//     Global<float> x;
//     int count;
//     float by;
//     DEVICE void operator()() const {
//       for (int i = block_x() * kThreads + thread(); i < count; i += blocks_x() * kThreads) x[i] *= by;
//     }
//   };
//   stream.launch({.x = blocks, .threads = 256}, Scale{x, count, 2});
//
// Members are numbers, Globals and arrays of them: a launch copies the bytes.
//
// What both files define, in namespace quire::cuda:
//
//   DEVICE                     marks functions that kernels call; they are inlined
//
//   Where a thread is
//   int thread(), threads()    its number in the block, and their number; blocks have one dimension
//   int lane(), warp()         thread() % 32, thread() / 32
//   int block_x(), block_y(), block_z(), blocks_x(), blocks_y(), blocks_z()
//
//   Memory. Global<T> and Shared<T> are used like T*: [], +, +=, - of a number, comparison with nullptr, conversion of
//   T to const T. Made from an address of the device, or by cast<U>(pointer) from one of another type. On a GPU they are
//   pointers. Not volatile: a value that another thread wrote is seen after a barrier.
//   const std::byte* address_of(Global)        for the host
//   Shared<T> shared<T>(size_t offset)         the block's shared memory, from this byte on; at least 128 aligned + offset
//   struct Words<N> { uint32_t w[N]; }         N is 1, 2 or 4
//   Words<N> load<N>(p)                        4 N bytes at p, a multiple of 4 N, of global or shared memory
//   Words<N> load_once<N>(p)                   of global memory that no kernel of this launch writes, and that is not read soon
//                                              again: it does not stay in L1
//   prefetch(p)                                brings the line of global memory at p to the L2 cache, sooner or later
//   store(p, Words<N>)
//
//   Barriers
//   sync_block(), sync_warp()                  all threads of the block, of the warp
//   sync_part(id, threads)                     so many threads, whole warps, at barrier `id`, 1 .. 15
//   wait_previous()                            until earlier launches are done and their results are seen. Only kernels with a
//                                              member kWaits call it, once in each thread, before they read anything that a
//                                              launch writes and before they write global memory; the others begin after it
//
//   Clusters: LaunchShape::cluster blocks that run together (sm_90a alone)
//   int block_of_cluster()                     this block's number among them
//   sync_cluster()                             all threads of the cluster. A block must not end while another may still use its
//                                              shared memory
//   Barriers of arrivals (mbarrier) are 8 bytes of shared memory. A phase ends when all the arrivals that it counts and all the bytes
//   that it expects have come. Who has waited for it sees what was done before these arrivals.
//   init_arrivals(Shared<uint64_t> b, int count)       by one thread, before a sync_cluster()
//   arrive(b, int block)                               at the barrier of that block of the cluster, in the same place as b
//   arrive_expecting(b, int bytes)                     at the block's own; the phase ends no sooner than so many bytes have come
//   wait_arrivals(b, int parity)                       until the phase of this parity has ended: 0 is that of the first, third, ...
//   BoxMap                                             a matrix of 2-byte numbers in global memory (Device::map_boxes()), as a
//                                                      member of a kernel
//   copy_box(const BoxMap& from, int column, int row, Shared<uint8_t> to, Shared<uint64_t> b, uint32_t blocks)
//     TMA: kBoxColumns, 64, columns of BoxMap's rows of a box, from there on, to the same place in each block of the cluster whose bit is set, in
//     the 128-byte swizzle of product_rows(); beyond the matrix there are zeros. The bytes arrive at each one's barrier b. to: a
//     multiple of 1024. No fence_shared() is needed
//
//   Warps. All 32 lanes must call them.
//   T shuffle(T v, int from), shuffle_xor(T v, int mask), shuffle_up(T v, int by), shuffle_down(T v, int by)
//                                              T: float, int or uint32_t. up and down: lanes without a partner keep v
//   uint32_t ballot(bool)
//
//   Copies to shared memory that go on while the thread does
//   copy_async<Bytes>(Shared to, Global from, bool valid = true)   4, 8 or 16 bytes, aligned; zeros if not valid
//   commit_copies()                            those since the last commit are a group
//   wait_copies<N>()                           until all but the last N groups of this thread are done; other threads see
//                                              them after a barrier
//
//   Matrices. All lanes of a warp call them. g = lane() / 4, i = lane() % 4. A word holds two numbers, the first in the low half.
//   multiply_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//     mma.m16n8k16: d += a b in float32.
//     a: words (row g, columns 2i, 2i+1), (row g+8, the same), (row g, columns 2i+8, 2i+9), (row g+8, the same)
//     b: words (rows 2i, 2i+1, column g), (rows 2i+8, 2i+9, column g)
//     d: (row g, columns 2i, 2i+1), (row g+8, the same)
//   multiply_f16(d, a, b)                      likewise, of float16
//   multiply_i8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
//     mma.m16n8k32 of int8, exact. a: four numbers a word, columns 4i .. 4i+3, of rows as above, then columns + 16; b: rows 4i ..
//     4i+3 of column g, then rows + 16
//   load_matrices(uint32_t (&r)[N], Shared row)              ldmatrix, N = 1, 2, 4: lane 8 m + k gives the address of row k, 16 bytes,
//     of matrix m. r[m]: numbers 2i, 2i+1 of row g
//   load_matrices_transposed(...)              r[m]: number g of rows 2i and 2i+1
//
//   Warpgroups: 4 consecutive warps, the first a multiple of 4 (sm_90a alone; kHasWarpgroups says whether this build has
//   them). All 128 threads call them.
//   fence_products()                           before the first product, and after registers of d or a were written
//   multiply_bf16_wide<N>(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add = true)
//     wgmma.m64nNk16: d += a b^T, or d = a b^T without `add`, for a [64][16] in registers, each warp's 16 rows as in multiply_bf16; d: for each 8 columns the four
//     of multiply_bf16. N: 8, 64 or 128. The product runs on: d must not be touched before wait_products()
//   multiply_e4m3_wide<N>(d, a, b, add)        likewise wgmma.m64nNk32 of E4M3: a as of multiply_i8, b [N][32], 128 numbers a row. Sums have
//     fewer digits than float32 (sm_90: about 14 bits). N: 8, 32, 64 or 128
//   multiply_i8_wide<N>(int32_t (&d)[N / 2], a, b, add)    likewise of int8, exact. N: 64, 128 or 256
//   uint64_t product_rows(Shared p)            b [N][16] as rows of 64 bf16 numbers, 128 bytes each, at p + 1024 m, in the
//     128-byte swizzle: the 16 bytes at offset o of row n lie at o ^ (n % 8 * 16). p: 1024 aligned, plus 32 bytes for each further
//     16 columns
//   commit_products(), wait_products<N>()      as for copies
//   hold_products(d)                           before fence_products() and after wait_products(): the compiler moves no reads or writes of d past
//                                              this point. Otherwise it may read d too early, and then runs products one by one
//   raise_registers<N>(), lower_registers<N>()   how many a thread of the warpgroup has from here on; a kernel's warpgroups together no
//                                              more than it was started with
//   fence_shared()                             after ordinary and asynchronous stores to shared memory, before the barrier that
//                                              precedes products which read it
//
//   Numbers
//   uint32_t pack_bf16(float low, float high), pack_f16(low, high)      rounded to nearest even; NaN stays NaN
//   float low_bf16(uint32_t), high_bf16(uint32_t), low_f16(uint32_t), high_f16(uint32_t)
//   uint32_t subtract_bf16(uint32_t, uint32_t)   pairwise; rounded
//   float e4m3(uint8_t)                          OCP E4M3FN
//   uint32_t pack_e4m3(float, float, float, float)   the first in the low byte; rounded to nearest even, at most 448; NaN stays NaN
//   uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector)    prmt
//   float bits_float(uint32_t), uint32_t float_bits(float)
//   float fma_of(a, b, c), exp_of(x), exp2_of(x), log_of(x), tanh_of(x), sqrt_of(x), erf_of(x), max_of(a, b), min_of(a, b)
//     exp2_of() is the fast approximation of the device (2 ulp); others are as exact as the host's within 2 ulp. max_of() of a
//     NaN and a number is NaN.
//
// Products and sums are only fused where fma_of() says so.
#pragma once

#if defined(__CUDACC__)
#include "cuda/alphabet/gpu.h"
#else
#include "cuda/alphabet/emulated.h"
#endif
