// Flushes subnormal numbers to zero, as the bf16 definition requires: matrix units do so whatever the CPU's mode.
#pragma once

#include <cstdint>

namespace quire {

// The sums of half a block of inputs are kept like this, because some kernels add them while they flush and others do not.
[[gnu::always_inline]] inline float normal_or_zero(float x) { return __builtin_fabsf(x) < 0x1p-126f ? 0.0f : x; }

// While it lives and if `wanted`, this thread treats subnormal inputs and results of float32 arithmetic as zero.
// Always inlined, so that no copy compiled for one instruction set is used by another.
//
// Processors differ in when they call a result subnormal. x86 decides after rounding, ARM64 before (Arm ARM, FPRound() with
// FPCR.AH = 0). So a result whose exact magnitude lies below 2^-126 by at most 2^-151, half the distance of two floats there, is
// 2^-126 on x86 and 0 on ARM64. All kernel sets of one machine agree, and so do both architectures on all other results.
class FlushDenormals {
 public:
  [[gnu::always_inline]] explicit FlushDenormals(bool wanted) : mode_(mode()) {
    if (wanted) set_mode(mode_ | kFlush);
  }
  [[gnu::always_inline]] ~FlushDenormals() { set_mode(mode_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  // "memory": keeps loads and stores, and so the arithmetic between them, on their side.
#if defined(__x86_64__)
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0x8040;  // MXCSR: FTZ for results, DAZ for inputs
  [[gnu::always_inline]] static Mode mode() {
    Mode m = 0;
    asm volatile("stmxcsr %0" : "=m"(m)::"memory");
    return m;
  }
  [[gnu::always_inline]] static void set_mode(Mode m) { asm volatile("ldmxcsr %0" ::"m"(m) : "memory"); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = 1u << 24;  // FPCR.FZ, for inputs and results
  [[gnu::always_inline]] static Mode mode() {
    Mode m = 0;
    asm volatile("mrs %0, fpcr" : "=r"(m)::"memory");
    return m;
  }
  [[gnu::always_inline]] static void set_mode(Mode m) { asm volatile("msr fpcr, %0" ::"r"(m) : "memory"); }
#else
#error "FlushDenormals is written for x86-64 and ARM64 only: without it bf16 results would have other bits than defined"
#endif
  Mode mode_;
};

}  // namespace quire
