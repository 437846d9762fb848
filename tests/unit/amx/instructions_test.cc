// The tile instructions themselves, on the hardware or trapped (trap.h): addresses, shapes, arithmetic, faults. Their
// arithmetic is compared with plain C++: on a machine with AMX, this is where Quire's
// definition of a bf16 product is checked against the silicon.

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/cpu.h"
#include "unit/amx/emulated_tiles.h"

namespace quire {
namespace {

struct Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

void configure(const Config& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
void release() { asm volatile("tilerelease"); }

class TileInstructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_features().amx || !permit_tiles()) GTEST_SKIP() << "neither AMX nor AVX-512, which its emulation needs";
  }
};

TEST_F(TileInstructions, FindOperandsInEveryAddressingMode) {
  std::byte memory[2048], got[6][4][8] = {};
  for (size_t i = 0; i < sizeof memory; ++i) memory[i] = static_cast<std::byte>(i * 37 >> 2);
  Config config;
  for (int t = 0; t < 8; ++t) config.rows[t] = 4, config.row_bytes[t] = 8;
  configure(config);
  const std::byte* base = memory + 512;
  const auto stride = static_cast<ptrdiff_t>(20);
  asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(base), "r"(stride) : "memory");
  asm volatile("tileloadd -16(%0,%1,2), %%tmm1" ::"r"(base), "r"(stride) : "memory");
  asm volatile("tileloadd 300(%0,%1,4), %%tmm2" ::"r"(base), "r"(stride) : "memory");
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm3" ::"r"(base), "r"(-stride) : "memory");
  asm volatile("mov %0, %%r13; mov %1, %%r12; tileloadd 4(%%r13,%%r12,8), %%tmm4" ::"r"(base), "r"(stride)
               : "r12", "r13", "memory");
  asm volatile("mov %0, %%r12; tileloadd (%%r12), %%tmm5" ::"r"(base) : "r12", "memory");  // every row the same
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(got[0]), "r"(size_t{8}) : "memory");
  asm volatile("tilestored %%tmm1, (%0,%1,2)" ::"r"(got[1]), "r"(size_t{4}) : "memory");
  asm volatile("tilestored %%tmm2, 64(%0,%1,8)" ::"r"(got[0]), "r"(size_t{1}) : "memory");
  asm volatile("mov %0, %%rbx; mov %1, %%r14; tilestored %%tmm3, (%%rbx,%%r14,1)" ::"r"(got[3]), "r"(size_t{8})
               : "rbx", "r14", "memory");
  // rbp may be the frame pointer, which cannot be declared as clobbered.
  asm volatile(
      "mov %0, %%r8; mov %%rbp, %%r15; mov %1, %%rbp; tilestored %%tmm4, (%%r8,%%rbp,1); mov %%r15, %%rbp" ::"r"(
          got[4]),
      "r"(size_t{8})
      : "r8", "r15", "memory");
  asm volatile("tilestored %%tmm5, (%0,%1,1)" ::"r"(got[5]), "r"(size_t{8}) : "memory");
  release();
  const std::byte* begins[] = {base, base - 16, base + 300, base, base + 4, base};
  const ptrdiff_t strides[] = {20, 40, 80, -20, 160, 0};
  for (int t = 0; t < 6; ++t) {
    for (int r = 0; r < 4; ++r)
      EXPECT_EQ(std::memcmp(got[t][r], begins[t] + r * strides[t], 8), 0) << "tile " << t << " row " << r;
  }
}

TEST_F(TileInstructions, KeepTheirConfigurationUntilReleased) {
  static Config config;  // at an address relative to RIP
  config = {};
  for (int t = 0; t < 8; ++t)
    config.rows[t] = static_cast<uint8_t>(16 - t), config.row_bytes[t] = static_cast<uint16_t>(64 - 4 * t);
  configure(config);
  Config got;
  asm volatile("sttilecfg %0" : "=m"(got));
  EXPECT_EQ(std::memcmp(&got, &config, sizeof got), 0);
  release();
  asm volatile("sttilecfg %0" : "=m"(got));
  config = {};
  config.palette = 0;
  EXPECT_EQ(std::memcmp(&got, &config, sizeof got), 0);
}

TEST_F(TileInstructions, MultiplyBytesOfEitherSign) {
  std::mt19937 random(1);
  uint8_t a[16][64], b[16][64];
  for (auto* bytes : {a[0], b[0]}) {
    for (int i = 0; i < 1024; ++i) bytes[i] = static_cast<uint8_t>(random());
  }
  Config config;
  for (int t = 0; t < 6; ++t) config.rows[t] = 16, config.row_bytes[t] = 64;
  configure(config);
  const size_t stride = 64;
  asm volatile("tileloadd (%0,%1,1), %%tmm4" ::"r"(a), "r"(stride) : "memory");
  asm volatile("tileloadd (%0,%1,1), %%tmm5" ::"r"(b), "r"(stride) : "memory");
  asm volatile("tilezero %tmm0; tilezero %tmm1; tilezero %tmm2; tilezero %tmm3");
  asm volatile("tdpbssd %tmm5, %tmm4, %tmm0; tdpbsud %tmm5, %tmm4, %tmm1");
  asm volatile("tdpbusd %tmm5, %tmm4, %tmm2; tdpbuud %tmm5, %tmm4, %tmm3");
  int32_t got[4][16][16];
  asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(got[0]), "r"(stride) : "memory");
  asm volatile("tilestored %%tmm1, (%0,%1,1)" ::"r"(got[1]), "r"(stride) : "memory");
  asm volatile("tilestored %%tmm2, (%0,%1,1)" ::"r"(got[2]), "r"(stride) : "memory");
  asm volatile("tilestored %%tmm3, (%0,%1,1)" ::"r"(got[3]), "r"(stride) : "memory");
  release();
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      int32_t expected[4] = {};
      for (int k = 0; k < 64; ++k) {
        const uint8_t x = a[m][k], w = b[k / 4][4 * n + k % 4];
        const auto sx = static_cast<int8_t>(x), sw = static_cast<int8_t>(w);
        expected[0] += sx * sw, expected[1] += sx * w, expected[2] += x * sw, expected[3] += x * w;
      }
      for (int i = 0; i < 4; ++i) EXPECT_EQ(got[i][m][n], expected[i]) << i << " row " << m << " column " << n;
    }
  }
}

// Two accumulated products of all shapes, by the kernels' policies.
template <class Tiles>
void two_products(TileShape shape, bool int8, const std::byte* a, const std::byte* b, std::byte* sums) {
  Tiles tiles(shape);
  const auto depth = static_cast<size_t>(shape.depth);
  tiles.template load<1>(sums, 64);
  tiles.template load<4>(a, depth), tiles.template load<7>(b, 64);
  tiles.template load<5>(a + 16 * depth, depth), tiles.template load<6>(b + 1024, 64);
  if (int8) {
    tiles.template dot_int8<1, 4, 7>(), tiles.template dot_int8<1, 5, 6>();
  } else {
    tiles.template dot_bf16<1, 4, 7>(), tiles.template dot_bf16<1, 5, 6>();
  }
  tiles.template store<1>(sums, 64);
}

// bf16 numbers: ordinary ones, small integers like weights, numbers of all magnitudes (products and sums that overflow,
// are subnormal or vanish), and subnormal ones.
enum class Numbers { kNormal, kIntegers, kAnySize, kSmall };
uint16_t number(Numbers numbers, std::mt19937& random) {
  const auto sign = static_cast<uint32_t>(random() & 1) << 31;
  switch (numbers) {
    case Numbers::kNormal:
      return f32_to_bf16(std::normal_distribution<float>()(random));
    case Numbers::kIntegers:
      return f32_to_bf16(static_cast<float>(static_cast<int>(random() % 256) - 128));
    case Numbers::kAnySize:  // at most 2^63: kernels do not define sums that are NaN
      return static_cast<uint16_t>((random() % (0x5f00) | sign >> 16));
    case Numbers::kSmall:  // products near the smallest normal number
      return static_cast<uint16_t>((0x1f00 + random() % 0x180) | sign >> 16);
  }
  return 0;
}

TEST_F(TileInstructions, MultiplyToTheEmulationsBits) {
  std::mt19937 random(2);
  for (const bool int8 : {true, false}) {
    for (const Numbers numbers : {Numbers::kNormal, Numbers::kIntegers, Numbers::kAnySize, Numbers::kSmall}) {
      for (const int rows : {1, 2, 7, 16}) {
        for (const int depth : {4, 16, 32, 64}) {
          for (int round = 0; round < 20; ++round) {
            uint16_t a[2][512], b[2][512];
            alignas(64) float expected[256], got[256];
            for (auto* x : {a[0], a[1], b[0], b[1]}) {
              for (int i = 0; i < 512; ++i) x[i] = number(numbers, random);
            }
            for (float& sum : expected) {
              sum = bf16_to_f32(number(numbers, random));
              if (numbers == Numbers::kSmall) sum *= 0x1p-64f;
            }
            std::memcpy(got, expected, sizeof got);
            const auto bytes = [](void* p) { return static_cast<std::byte*>(p); };
            two_products<EmulatedTiles>({rows, depth}, int8, bytes(a), bytes(b), bytes(expected));
            two_products<Tiles>({rows, depth}, int8, bytes(a), bytes(b), bytes(got));
            for (int i = 0; i < 256; ++i) {
              ASSERT_EQ(std::memcmp(&got[i], &expected[i], 4), 0)
                  << (int8 ? "int8" : "bf16") << " numbers " << static_cast<int>(numbers) << " rows " << rows
                  << " depth " << depth << " row " << i / 16 << " column " << i % 16 << ": " << got[i] << " instead of "
                  << expected[i];
            }
          }
        }
      }
    }
  }
}

// A fault of the hardware ends the process; so it does under emulation.
TEST_F(TileInstructions, FaultOnUnconfiguredTiles) {
  const auto with = [](auto change, auto use) {
    Config config;
    for (int t = 0; t < 8; ++t) config.rows[t] = 16, config.row_bytes[t] = 64;
    change(config);
    configure(config);
    use();
  };
  const auto as_is = [](Config&) {};
  const auto nothing = [] {};
  const auto multiply = [] { asm volatile("tdpbssd %tmm6, %tmm4, %tmm0"); };
  release();
  EXPECT_DEATH(asm volatile("tilezero %tmm0"), "");
  EXPECT_DEATH(with([](Config& c) { c.palette = 2; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.reserved[3] = 1; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.rows[8] = 1; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.rows[2] = 17; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.row_bytes[2] = 65; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.rows[2] = 0; }, nothing), "");
  EXPECT_DEATH(with([](Config& c) { c.rows[0] = c.row_bytes[0] = 0; }, multiply), "");
  EXPECT_DEATH(with([](Config& c) { c.rows[4] = 8; }, multiply), "");
  EXPECT_DEATH(with([](Config& c) { c.row_bytes[4] = 32; }, multiply), "");
  EXPECT_DEATH(with([](Config& c) { c.row_bytes[6] = 32; }, multiply), "");
  EXPECT_DEATH(
      with(as_is, [] { asm volatile(".byte 0xc4, 0xe2, 0x5b, 0x5e, 0xc4" /* tdpbssd %tmm4, %tmm4, %tmm0 */); }), "");
  EXPECT_DEATH(with(as_is, [] { asm volatile("ud2"); }), "");
  with(as_is, multiply);  // not this
  release();
}

}  // namespace
}  // namespace quire
