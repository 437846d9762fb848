// The numbers of the alphabet on the host, next to their definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "base/half.h"
#include "cuda/alphabet/alphabet.h"

namespace quire::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(EmulatedNumbers, PacksAndUnpacksHalves) {
  EXPECT_EQ(pack_bf16(1, -2), 0xC0003F80u);
  EXPECT_EQ(pack_f16(1, -2), 0xC0003C00u);
  EXPECT_EQ(pack_bf16(kNan, 1), 0x3F807FFFu);
  EXPECT_EQ(pack_f16(1, -kNan), 0x7FFF3C00u);
  EXPECT_EQ(pack_f16(65520, -65519), 0xFBFF7C00u);              // the first that overflows, the last that does not
  EXPECT_EQ(pack_bf16(1.00390625f, 1.01171875f), 0x3F823F80u);  // ties, to even
  EXPECT_EQ(low_bf16(0xC0003F80u), 1);
  EXPECT_EQ(high_bf16(0xC0003F80u), -2);
  EXPECT_EQ(low_f16(0xC0003C00u), 1);
  EXPECT_EQ(high_f16(0xC0003C00u), -2);
  EXPECT_EQ(e4m3(0x38), 1);
  EXPECT_EQ(e4m3(0xFE), -448);
}

TEST(EmulatedNumbers, SubtractsBf16WithOneRounding) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    // Numbers whose difference a double holds exactly.
    const auto a = static_cast<uint16_t>(0x3F80 + random() % 0x1400);
    const auto b = static_cast<uint16_t>((0x3F80 + random() % 0x1400) | (random() & 1 ? 0x8000 : 0));
    const double exact = static_cast<double>(bf16_to_f32(a)) - bf16_to_f32(b);
    const uint32_t result = subtract_bf16(uint32_t{a} << 16, uint32_t{b} << 16) >> 16;
    // Its neighbours are not closer, and at a tie it is even.
    const double off = std::abs(exact - bf16_to_f32(static_cast<uint16_t>(result)));
    for (const uint32_t neighbour : {result - 1, result + 1}) {
      const double other = std::abs(exact - bf16_to_f32(static_cast<uint16_t>(neighbour)));
      ASSERT_TRUE(exact == 0 || off < other || (off == other && result % 2 == 0)) << a << " - " << b;
    }
  }
}

TEST(EmulatedNumbers, PermutesBytes) {
  EXPECT_EQ(permute_bytes(0x33221100, 0x77665544, 0x3210), 0x33221100u);
  EXPECT_EQ(permute_bytes(0x33221100, 0x77665544, 0x5410), 0x55441100u);
  EXPECT_EQ(permute_bytes(0x33221100, 0x77665544, 0x0076), 0x00007766u);
}

TEST(EmulatedNumbers, HasTheEdgesOfTheDevice) {
  EXPECT_EQ(exp2_of(10), 1024);
  EXPECT_EQ(exp2_of(-126), 0x1p-126f);
  EXPECT_EQ(exp2_of(-127), 0);  // subnormal
  EXPECT_EQ(exp2_of(-kInfinity), 0);
  EXPECT_TRUE(std::isnan(exp2_of(kNan)));
  EXPECT_TRUE(std::isnan(max_of(1, kNan)));
  EXPECT_TRUE(std::isnan(min_of(kNan, 1)));
  EXPECT_EQ(max_of(-kInfinity, 2), 2);
  EXPECT_EQ(min_of(-kInfinity, 2), -kInfinity);
  EXPECT_FALSE(std::signbit(max_of(-0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(min_of(0.0f, -0.0f)));
  EXPECT_EQ(fma_of(1 + 0x1p-12f, 1 + 0x1p-12f, -1), 0x1p-11f + 0x1p-24f);
}

}  // namespace
}  // namespace quire::cuda
