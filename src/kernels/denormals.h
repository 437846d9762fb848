// Subnormal numbers as zero, while the bf16 definition is computed: what matrix units do, whatever the mode of the CPU.
#pragma once

#include <cstdint>

namespace quire {

// For this thread, while it lives and if `wanted`, subnormal inputs and results of float32 arithmetic count as zero.
// Always inlined, so that no copy compiled for one instruction set serves another.
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
  // "memory": arithmetic on what is loaded later, or stored before, stays on its side.
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
