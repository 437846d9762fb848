// Flushes subnormal numbers to zero, as the bf16 definition requires: matrix units do so whatever the CPU's mode.
#pragma once

#include <cstdint>

namespace quire {

// The sums of half a block of inputs are kept like this, because some kernels add them while they flush and others do not.
[[gnu::always_inline]] inline float normal_or_zero(float x) { return __builtin_fabsf(x) < 0x1p-126f ? 0.0f : x; }

// While it lives and if `wanted`, this thread treats subnormal inputs and results of float32 arithmetic as zero.
// Always inlined, so that no copy compiled for one instruction set is used by another.
class FlushDenormals {
 public:
  [[gnu::always_inline]] explicit FlushDenormals(bool wanted) : mode_(mode()) {
    if (wanted) set_mode(mode_ | kFlushToZero | kDenormalsAreZero);
  }
  [[gnu::always_inline]] ~FlushDenormals() { set_mode(mode_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  // "memory": keeps loads and stores, and so the arithmetic between them, on their side.
  [[gnu::always_inline]] static uint32_t mode() {
    uint32_t m = 0;
    asm volatile("stmxcsr %0" : "=m"(m)::"memory");
    return m;
  }
  [[gnu::always_inline]] static void set_mode(uint32_t m) { asm volatile("ldmxcsr %0" ::"m"(m) : "memory"); }
#else  // no matrix unit to agree with
  static constexpr uint32_t kFlushToZero = 0, kDenormalsAreZero = 0;
  static uint32_t mode() { return 0; }
  static void set_mode(uint32_t) {}
#endif
  uint32_t mode_;
};

}  // namespace quire
