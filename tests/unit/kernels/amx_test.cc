// What tile kernels do only for larger matrices (chunks of K, groups of panels, blocks of rows), and how they lay out
// their inputs. Compared with the vector kernels, which linear_test.cc compares with the reference.

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kernels/kernels.h"
#include "unit/kernels/random_panels.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

class Tiles : public ::testing::TestWithParam<const KernelSet*> {};

struct Blocks {
  LargeBuffer memory;
  size_t stride;
};
Blocks quantize(const KernelSet& kernels, Activations to, const std::vector<float>& x, int rows, const float* norm) {
  const int cols = static_cast<int>(x.size()) / rows;
  Blocks b;
  b.stride = static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(to);
  b.memory = LargeBuffer(b.stride * padded_rows(rows));
  const QuantizeArgs args{.x = x.data(),
                          .x_stride = static_cast<size_t>(cols),
                          .cols = cols,
                          .norm_weight = norm,
                          .epsilon = 1e-5f,
                          .to = to,
                          .out = b.memory.data(),
                          .out_stride = b.stride};
  for (int row = 0; row < rows; row += 5) kernels.quantize(args, row, std::min(rows, row + 5));
  return b;
}

std::vector<float> normal_inputs(int count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

TEST_P(Tiles, KeepInputsInTileOrderWithTheVectorKernelsValues) {
  std::mt19937 random(5);
  const int rows = 19, cols = 77, blocks = 3;
  std::vector<float> x = normal_inputs(rows * cols, random);
  const uint32_t unusual[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001, 0x7f7fffff,
                              0xff7fffff, 0x00000001, 0x807fffff, 0x3f808000, 0x3f818000, 0x80000000};
  std::memcpy(x.data() + cols + 3, unusual, sizeof unusual);
  const std::vector<float> norm = normal_inputs(cols, random);
  for (const float* weight : {static_cast<const float*>(nullptr), norm.data()}) {
    const Blocks expected = quantize(reference_kernels(), Activations::kBf16, x, rows, weight);
    const Blocks got = quantize(*GetParam(), Activations::kBf16, x, rows, weight);
    for (int r = weight ? 2 : 0; r < rows; ++r) {  // normalised, all of row 1 is NaN
      for (int b = 0; b < blocks; ++b) {
        FloatBlock block;
        std::memcpy(&block, expected.memory.data() + static_cast<size_t>(r) * expected.stride + b * sizeof block,
                    sizeof block);
        const std::byte* group = got.memory.data() + static_cast<size_t>(r / 16 * 16) * got.stride + b * 1152;
        for (int k = 0; k < kBlockInputs; ++k) {
          uint16_t value;
          std::memcpy(&value, group + r % 16 * 64 + k * 2, 2);
          const float wide = bf16_to_f32(value);
          EXPECT_EQ(std::memcmp(&wide, &block.x[k], 4), 0) << "row " << r << " input " << b * kBlockInputs + k;
        }
        if (r == 1) continue;  // NaN
        for (size_t half = 0; half < 2; ++half) {
          EXPECT_EQ(std::memcmp(group + 1024 + half * 64 + r % 16 * 4, &block.half_sums[half], 4), 0)
              << "row " << r << " block " << b;
        }
      }
    }
  }
}

TEST_P(Tiles, GiveTheVectorKernelsBitsOverManyChunksPanelsAndRows) {
  std::mt19937 random(6);
  constexpr TensorType kTypes[] = {TensorType::Q4_1,  TensorType::Q5_0, TensorType::Q6_K,
                                   TensorType::Q8_0,  TensorType::Q2_K, TensorType::Q3_K,
                                   TensorType::MXFP4, TensorType::BF16, TensorType::F16};
  for (const TensorType type : kTypes) {
    const int outputs = 19 * kPanel + 5, cols = info(type).block_elements == 256 ? 1280 : 1088, most_rows = 275;
    const TensorType up_type = type == TensorType::Q4_1   ? TensorType::Q5_0
                               : type == TensorType::BF16 ? TensorType::F16
                                                          : type;
    const auto weights = testing::random_matrix(type, outputs, cols, random);
    const auto up = testing::random_matrix(up_type, outputs, cols, random);
    const std::vector<float> all = normal_inputs(most_rows * cols, random);
    for (const Activations mode : {Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
      const Activations to = activations_for(mode, weights.matrix.format);
      if (to != mode) continue;
      for (const int rows : {1, 3, 12, 33, most_rows}) {
        const std::vector<float> x(all.begin(), all.begin() + rows * cols);
        for (const bool gated : {false, true}) {
          // Emulation is slow: most_rows only for one type of each kind.
          if (rows == most_rows && type != TensorType::Q4_1 &&
              (gated || (type != TensorType::Q6_K && type != TensorType::BF16)))
            continue;
          const auto run = [&](const KernelSet& kernels, const LinearLoop* loop) {
            const Blocks in = quantize(kernels, to, x, rows, nullptr);
            std::vector<float> y(static_cast<size_t>(rows * outputs), 0.5f);
            const LinearArgs args{.weights = &weights.matrix,
                                  .up = gated ? &up.matrix : nullptr,
                                  .activations = to,
                                  .x = in.memory.data(),
                                  .x_stride = in.stride,
                                  .y = y.data(),
                                  .y_stride = static_cast<size_t>(outputs),
                                  .nonlinearity = gated ? Nonlinearity::kSilu : Nonlinearity::kNone,
                                  .accumulate = !gated,
                                  .loop = loop};
            // In two parts; the second begins at a later group of rows.
            const int cut = rows > 2 * kRowGroup ? kRowGroup : rows, panels = weights.matrix.panels();
            kernels.linear(args, 0, panels, 0, cut);
            if (cut < rows)
              kernels.linear(args, 0, panels / 3, cut, rows), kernels.linear(args, panels / 3, panels, cut, rows);
            return y;
          };
          const auto expected = run(*avx512_kernels(), nullptr), got = run(*GetParam(), nullptr);
          if (rows == 33) {
            std::array<LinearLoop, kMostLinearLoops> loops;
            const size_t count = GetParam()->linear_loops(weights.matrix, to, rows, loops);
            for (size_t i = 1; i < count; ++i) {
              const auto with_loop = run(*GetParam(), &loops[i]);
              ASSERT_EQ(std::memcmp(expected.data(), with_loop.data(), sizeof(float) * expected.size()), 0)
                  << name(type) << " activations " << static_cast<int>(to) << " gated " << gated << " loop " << i;
            }
          }
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(std::memcmp(&expected[i], &got[i], 4), 0)
                << name(type) << " activations " << static_cast<int>(to) << " rows " << rows << " gated " << gated
                << " row " << i / outputs << " output " << i % outputs << ": " << got[i] << " instead of "
                << expected[i];
          }
        }
      }
    }
  }
}

std::vector<const KernelSet*> tile_kernels() {
  std::vector<const KernelSet*> sets;
  for (const KernelSet* set : testing::testable_kernels()) {
    if (set->name.ends_with("amx")) sets.push_back(set);
  }
  return sets;
}
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Tiles);  // without AVX-512
INSTANTIATE_TEST_SUITE_P(KernelSets, Tiles, ::testing::ValuesIn(tile_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
