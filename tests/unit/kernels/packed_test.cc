// Packing finds numbers that are none.

#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "unit/kernels/random_blocks.h"

namespace quire {
namespace {

constexpr int kRows = 37, kCols = 512;  // the last panel is not full

// Where the floats of a block lie: weights, or float16 scales and minima.
std::vector<size_t> floats_of(TensorType type) {
  if (type == TensorType::Q6_K) return {208};
  return is_quantized(type) && packed_format(type).has_minimum ? std::vector<size_t>{0, 2} : std::vector<size_t>{0};
}

void put(TensorType type, std::byte* at, bool infinity) {
  const uint32_t f32 = infinity ? 0xFF80'0000 : 0x7F80'0001;
  const uint16_t bf16 = infinity ? 0xFF80 : 0x7F81, f16 = infinity ? 0xFC00 : 0x7C01;
  if (type == TensorType::F32) return void(std::memcpy(at, &f32, sizeof f32));
  std::memcpy(at, type == TensorType::BF16 ? &bf16 : &f16, sizeof f16);
}

class IsFinite : public ::testing::TestWithParam<TensorType> {};

TEST_P(IsFinite, HoldsForNumbers) {
  std::mt19937 random(1);
  const auto m = testing::pack(GetParam(), kRows, kCols, testing::random_matrix(GetParam(), kRows, kCols, random));
  for (int panel = 0; panel < m.matrix.panels(); ++panel) EXPECT_TRUE(is_finite(m.matrix, panel));
}

TEST_P(IsFinite, FindsEveryNanAndInfinity) {
  std::mt19937 random(2);
  const std::vector<std::byte> sound = testing::random_matrix(GetParam(), kRows, kCols, random);
  const size_t size = info(GetParam()).block_bytes, blocks = sound.size() / size, of_row = blocks / kRows;
  for (int i = 0; i < 200; ++i) {
    const size_t block = i == 0 ? 0 : i == 1 ? blocks - 1 : random() % blocks;
    for (const size_t at : floats_of(GetParam())) {
      std::vector<std::byte> bytes = sound;
      put(GetParam(), bytes.data() + block * size + at, i % 2 == 0);
      const auto m = testing::pack(GetParam(), kRows, kCols, bytes);
      for (int panel = 0; panel < m.matrix.panels(); ++panel)
        EXPECT_EQ(is_finite(m.matrix, panel), std::cmp_not_equal(panel, block / of_row / kPanel)) << block;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, IsFinite, ::testing::ValuesIn(testing::kLoadable),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace quire
