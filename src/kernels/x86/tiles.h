// The eight tile registers of AMX. On machines without them, tests trap the instructions (tests/unit/amx/trap.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {
namespace {

// The shapes of the registers while a kernel runs:
//   0..3  sums     [rows][16] of 32 bits
//   4, 5  inputs   [rows][depth bytes]
//   6, 7  weights  [depth / 4][16] of 4 bytes
struct TileShape {
  int rows;   // 1 .. 16
  int depth;  // bytes per row of inputs: 4 .. 64
};

// Assembly rather than intrinsics: gcc 12's declare only 8 of the configuration's 64 bytes as read and nothing of what
// a tile load reads, so that earlier stores may be dropped; and they accept no template parameter.
class Tiles {
 public:
  // Configures this thread's registers until the destructor releases them, so that no context switch has to save them.
  // Costs about a hundred cycles per call, compared with tens of microseconds of work.
  [[gnu::always_inline]] explicit Tiles(TileShape shape) {
    struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? shape.depth : 64);
      config.rows[t] = static_cast<uint8_t>(t < 6 ? shape.rows : shape.depth / 4);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  [[gnu::always_inline]] ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  [[gnu::always_inline]] void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  // Loads rows that are `stride` bytes apart.
  template <int kTile>
  [[gnu::always_inline]] void load(const void* p, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  [[gnu::always_inline]] void store(void* p, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // sums += inputs * weights of signed bytes; exact.
  template <int kSums, int kInputs, int kWeights>
  [[gnu::always_inline]] void dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kInputs), "i"(kWeights));
  }
  // sums += even + odd: chains of FMAs from 0 over the even and the odd inputs; subnormal numbers are zero.
  template <int kSums, int kInputs, int kWeights>
  [[gnu::always_inline]] void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kInputs), "i"(kWeights));
  }
};

}  // namespace
}  // namespace quire
