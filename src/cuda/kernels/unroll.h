// UNROLL before a loop: nvcc unrolls it wholly, so that the arrays which it indexes stay in registers. ROLLED: nvcc does not
// unroll it, so that what one turn needs fits in registers. UNROLL_BY_4: four turns at a time, whose loads run together.
#pragma once

#if defined(__CUDACC__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define UNROLL_BY_4 _Pragma("unroll 4")
#else
#define UNROLL
#define ROLLED
#define UNROLL_BY_4
#endif
