// UNROLL before a loop: nvcc unrolls it wholly, so that the arrays which it indexes stay in registers. ROLLED: nvcc does not
// unroll it, so that what one turn needs fits in registers.
#pragma once

#if defined(__CUDACC__)
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#define UNROLL
#define ROLLED
#endif
