// Every kernel set gives the reference's bits, for every type, row count and tail.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/self_check.h"
#include "quant/blocks.h"
#include "sanitizers.h"
#include "unit/kernels/random_panels.h"
#include "unit/kernels/reference_results.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

TEST(Packing, KeepsEveryWeight) {
  std::mt19937 random(1);
  for (const testing::Weights& w : testing::all_weights()) {
    const int rows = 35, cols = w.least_cols() == 1 ? 77 : w.type ? 512 : 528;
    std::vector<float> expected(static_cast<size_t>(rows * cols));
    testing::OwnedMatrix packed;
    if (w.type) {
      const auto source = testing::random_source(*w.type, rows, cols, random);
      packed = testing::pack(*w.type, rows, cols, source);
      dequantize(*w.type, source, expected);
    } else {
      packed = testing::random_coded(w, rows, cols, random, [&](int row, const CodedRow& coded) {
        decode_row(w.format, w.factor, coded,
                   std::span(expected).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
      });
    }
    std::vector<float> whole(static_cast<size_t>(cols));
    for (int n = 0; n < rows; ++n) {
      unpack_row(packed.matrix, n, whole.data());
      ASSERT_EQ(std::memcmp(whole.data(), &expected[static_cast<size_t>(n * cols)], sizeof(float) * whole.size()), 0)
          << w.name << " row " << n;
      for (int k = 0; k < cols; ++k) {
        const float value = packed_weight(packed.matrix, n, k);
        ASSERT_EQ(std::memcmp(&value, &expected[static_cast<size_t>(n * cols + k)], 4), 0)
            << w.name << " row " << n << " column " << k << ": " << value << " instead of "
            << expected[static_cast<size_t>(n * cols + k)];
      }
    }
  }
}

std::vector<float> random_inputs(int rows, int cols, std::mt19937& random) {
  std::vector<float> x(static_cast<size_t>(rows * cols));
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f);
  return x;
}

// y = x W^T; run() sets inputs and outputs.
LinearArgs linear_of(const PackedMatrix& weights, Activations activations) {
  return {.weights = &weights, .activations = activations, .x = nullptr, .x_stride = 0, .y = nullptr, .y_stride = 0};
}

// The linear of the first `rows` rows of x, which the kernel set quantizes itself: how it lays them out is its own
// business. In one piece, or in the smallest tiles there may be.
std::vector<float> run(const KernelSet& kernels, LinearArgs args, const std::vector<float>& x, int rows,
                       bool tiled = false) {
  const int cols = args.weights->cols, outputs = args.weights->rows;
  args.x_stride = static_cast<size_t>(args.weights->blocks()) * activation_block_bytes(args.activations);
  LargeBuffer blocks(args.x_stride * padded_rows(rows));
  kernels.quantize({.x = x.data(),
                    .x_stride = static_cast<size_t>(cols),
                    .cols = cols,
                    .to = args.activations,
                    .threshold = 25,  // for kInt8Row
                    .out = blocks.data(),
                    .out_stride = args.x_stride},
                   0, rows);
  args.x = blocks.data();
  std::vector<float> y(static_cast<size_t>(rows * outputs), 0.25f);
  args.y = y.data();
  args.y_stride = static_cast<size_t>(outputs);
  const int panels = args.weights->panels(), panel_step = tiled ? 1 : panels, row_step = tiled ? kRowGroup : rows;
  for (int panel = 0; panel < panels; panel += panel_step) {
    for (int row = 0; row < rows; row += row_step)
      kernels.linear(args, panel, panel + panel_step, row, std::min(rows, row + row_step));
  }
  return y;
}

struct Shape {
  int outputs, cols;
};
// Odd numbers of outputs, of blocks (or super-blocks), and of inputs where blocks need not be whole. Some are longer than
// what kernels decode at a time.
std::vector<Shape> shapes_of(const testing::Weights& w) {
  if (!has_scales(w.format)) return {{37, 77}, {5, 1}, {49, 97}};
  if (w.least_cols() == 256) return {{37, 256}, {5, 1280}};
  if (w.type) return {{37, 128}, {5, 384}, {49, 1152}};
  return {{37, 80}, {5, 48}, {49, 1136}};
}

constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64};
// Sanitized, only the slow reference runs (scripts/run_tests.py), which loops over rows.
constexpr int kMostRows = testing::kAddressSanitizer ? 16 : 64;

// The loops for so many rows. Prefetch distances do not matter to results: one of each.
std::vector<LinearLoop> loops_of(const KernelSet& kernels, const LinearArgs& args, int rows) {
  std::array<LinearLoop, kMostLinearLoops> all;
  const size_t count = kernels.linear_loops(*args.weights, args.activations, rows, all);
  std::vector<LinearLoop> loops;
  for (const LinearLoop& loop : std::span(all).first(count)) {
    if (std::ranges::none_of(
            loops, [&](const LinearLoop& other) { return other.kind == loop.kind && other.panels == loop.panels; }))
      loops.push_back(loop);
  }
  return loops;
}

// Compares each row count and loop with the first rows of the reference's result.
void expect_reference_bits(const KernelSet& kernels, const LinearArgs& args, const std::vector<float>& x,
                           testing::ReferenceResults& references, const std::string& about) {
  const auto& expected = references.next([&] { return run(reference_kernels(), args, x, kMostRows); });
  const auto outputs = static_cast<size_t>(args.weights->rows);
  for (const int rows : kRowCounts) {
    if (rows > kMostRows) break;
    for (const LinearLoop& loop : loops_of(kernels, args, rows)) {
      for (const bool tiled : {false, true}) {
        LinearArgs with_loop = args;
        with_loop.loop = &loop;
        const std::vector<float> got = run(kernels, with_loop, x, rows, tiled);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::memcmp(&expected[i], &got[i], 4), 0)
              << about << " activations " << static_cast<int>(args.activations) << " outputs " << outputs << " inputs "
              << args.weights->cols << " rows " << rows << " gated " << (args.up != nullptr) << " tiled " << tiled
              << " loop " << static_cast<int>(loop.kind) << " panels " << static_cast<int>(loop.panels) << " row "
              << i / outputs << " output " << i % outputs << ": " << got[i] << " instead of " << expected[i];
        }
      }
    }
    if (&kernels == &reference_kernels() && rows == 5) return;  // it loops over rows
  }
}

// avx512bf16 stores bf16 inputs in pairs (vector/linear_float.inc.h): restores the order of the other sets.
void undo_pairs(const KernelSet& kernels, FloatBlock& block) {
  if (kernels.name != "avx512bf16") return;
  uint32_t pairs[kBlockInputs / 2], x[kBlockInputs];
  std::memcpy(pairs, block.x, sizeof pairs);
  for (size_t i = 0; i < kBlockInputs; ++i) {
    const uint32_t pair = pairs[i / 4 * 2 + i % 2];
    x[i] = i % 4 < 2 ? pair & 0xffff0000u : pair << 16;
  }
  std::memcpy(block.x, x, sizeof x);
}

class Linear : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(Linear, GivesTheReferencesBits) {
  testing::ReferenceResults references;
  std::mt19937 random(2);
  for (const testing::Weights& w : testing::all_weights()) {
    for (const auto [outputs, cols] : shapes_of(w)) {
      const auto weights = testing::random_matrix(w, outputs, cols, random);
      const auto up = testing::random_matrix(w, outputs, cols, random);
      const std::vector<float> x = random_inputs(kMostRows, cols, random);
      std::vector<float> bias(static_cast<size_t>(outputs));
      for (float& b : bias) b = static_cast<float>(random() % 100) / 50;
      for (const Activations mode :
           {Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2, Activations::kInt8Row}) {
        if (mode == Activations::kInt8Row ? !takes_int8_rows(weights.matrix) : activations_for(mode, w.format) != mode)
          continue;
        LinearArgs added = linear_of(weights.matrix, mode), gated = added;
        added.bias = bias.data();
        added.accumulate = true;
        gated.up = &up.matrix;
        gated.nonlinearity = Nonlinearity::kSilu;
        expect_reference_bits(*GetParam(), added, x, references, w.name);
        expect_reference_bits(*GetParam(), gated, x, references, w.name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

constexpr Nonlinearity kNonlinearities[] = {Nonlinearity::kNone,     Nonlinearity::kSilu,         Nonlinearity::kGelu,
                                            Nonlinearity::kGeluTanh, Nonlinearity::kSigmoid,      Nonlinearity::kRelu,
                                            Nonlinearity::kRelu2,    Nonlinearity::kClampedSwiglu};

// All nonlinearities, alone and gated, with and without biases, a scale and addition. Weights of 20 make some gates
// larger than the clamp and than what exp can take.
TEST_P(Linear, FinishesOutputsToTheReferencesBits) {
  testing::ReferenceResults references;
  std::mt19937 random(12);
  for (const TensorType type : {TensorType::F32, TensorType::BF16, TensorType::Q4_1}) {
    const int outputs = 37, cols = 96, rows = 19;
    const auto weights = testing::random_matrix(type, outputs, cols, random);
    const auto up = testing::random_matrix(type, outputs, cols, random);
    std::vector<float> x = random_inputs(rows, cols, random);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= i / static_cast<size_t>(cols) % 4 == 3 ? 200.0f : 5.0f;
    std::vector<float> bias = random_inputs(1, outputs, random), up_bias = random_inputs(1, outputs, random);
    bias[5] = std::numeric_limits<float>::quiet_NaN(), up_bias[6] = std::numeric_limits<float>::infinity();
    for (const Activations mode : {Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
      for (const Nonlinearity nonlinearity : kNonlinearities) {
        for (const int extras : {0, 1, 2, 3}) {
          for (const bool gated : {false, true}) {
            if (!gated && nonlinearity == Nonlinearity::kClampedSwiglu) continue;
            LinearArgs args = linear_of(weights.matrix, activations_for(mode, weights.matrix.format));
            args.nonlinearity = nonlinearity;
            args.alpha = 1.702f, args.limit = 7;
            if (gated) args.up = &up.matrix;
            if (extras & 1) args.bias = bias.data(), args.up_bias = gated ? up_bias.data() : nullptr;
            if (extras & 2) args.scale = 0.37f, args.accumulate = true;
            const auto& expected = references.next([&] { return run(reference_kernels(), args, x, rows); });
            const auto got = run(*GetParam(), args, x, rows);
            for (size_t i = 0; i < got.size(); ++i) {
              if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
              ASSERT_EQ(std::memcmp(&expected[i], &got[i], 4), 0)
                  << name(type) << " activations " << static_cast<int>(args.activations) << " nonlinearity "
                  << static_cast<int>(nonlinearity) << " extras " << extras << " gated " << gated << " row "
                  << i / outputs << " output " << i % outputs << ": " << got[i] << " instead of " << expected[i];
            }
          }
        }
      }
    }
  }
}

// A router has float32 weights and inputs, whatever the other linears of the step use: none leaves a mode behind.
TEST_P(Linear, ComputesRoutersInFloat32BetweenOtherLinears) {
  std::mt19937 random(13);
  const int outputs = 60, cols = 128, rows = 33;
  const auto router = testing::random_matrix(TensorType::F32, outputs, cols, random);
  const auto other = testing::random_matrix(TensorType::Q8_0, outputs, cols, random);
  std::vector<float> x = random_inputs(rows, cols, random);
  for (float& value : x) value *= 0x1p-120f;  // products and sums are subnormal, and stay so
  const LinearArgs args = linear_of(router.matrix, Activations::kF32);
  const auto expected = run(reference_kernels(), args, x, rows);
  for (const Activations mode : {Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
    run(*GetParam(), linear_of(other.matrix, mode), x, rows);
    const auto got = run(*GetParam(), args, x, rows);
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  }
  EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](float y) { return y != 0 && !std::isnormal(y); }));
}

TEST_P(Linear, QuantizesAndNormalisesToTheReferencesBits) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int cols : {32, 77, 96, 576, 1000}) {
    const int rows = 3;
    std::vector<float> x(static_cast<size_t>(rows * cols)), weight(static_cast<size_t>(cols));
    for (float& v : x) v = normal(random);
    for (float& v : weight) v = normal(random);
    std::fill_n(x.begin(), std::min(cols, 40), 0.0f);  // a block of zeros
    for (const Activations to : {Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
      if (to == Activations::kBf16 && GetParam()->name.ends_with("amx")) continue;  // in tile order: amx_test.cc
      for (const float* norm : {static_cast<const float*>(nullptr), static_cast<const float*>(weight.data())}) {
        const size_t stride =
            static_cast<size_t>((cols + kBlockInputs - 1) / kBlockInputs) * activation_block_bytes(to);
        std::vector<std::byte> expected(stride * rows), got(stride * rows);
        QuantizeArgs args{.x = x.data(),
                          .x_stride = static_cast<size_t>(cols),
                          .cols = cols,
                          .norm_weight = norm,
                          .epsilon = 1e-5f,
                          .to = to,
                          .out = expected.data(),
                          .out_stride = stride};
        reference_kernels().quantize(args, 0, rows);
        args.out = got.data();
        GetParam()->quantize(args, 0, rows);
        if (to == Activations::kF32) {  // the sums of its blocks are unused
          for (size_t b = 0; b < expected.size(); b += sizeof(FloatBlock))
            ASSERT_EQ(std::memcmp(&expected[b], &got[b], sizeof(float) * kBlockInputs), 0) << cols;
        } else {
          for (size_t b = 0; b < expected.size(); b += activation_block_bytes(to)) {
            if (to == Activations::kBf16) undo_pairs(*GetParam(), *reinterpret_cast<FloatBlock*>(&got[b]));
            const size_t used = to == Activations::kBf16 ? offsetof(FloatBlock, unused) : activation_block_bytes(to);
            ASSERT_EQ(std::memcmp(&expected[b], &got[b], used), 0) << cols << " columns, to " << static_cast<int>(to);
          }
        }
      }
    }
  }
}

// The nearest of the codes times 2^e, of two that are as near the one with an even mantissa.
float nearest_e4m3(float x, int e) {
  double nearest = 0;
  bool even = true;
  for (int code = 0; code < 256; ++code) {
    const double value = std::ldexp(double{e4m3_to_f32(static_cast<uint8_t>(code))}, e);
    const double now = std::abs(value - x), best = std::abs(nearest - x);
    if (now < best || (now == best && !even)) nearest = value, even = code % 2 == 0;
  }
  return static_cast<float>(nearest);
}

TEST(E4M3Rows, HaveTheNearestNumbersUnderTheLeastScale) {
  EXPECT_EQ(e4m3_exponent(448), 0);
  EXPECT_EQ(e4m3_exponent(std::nextafter(448.0f, 1000.0f)), 1);
  EXPECT_EQ(e4m3_exponent(225), 0);
  EXPECT_EQ(e4m3_exponent(224), -1);
  EXPECT_EQ(e4m3_exponent(0), kLeastE4M3Exponent);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const int e : {-100, -20, 0, 1, 70}) {
    const uint32_t least_normal = e4m3_least_normal(e);
    const auto expect_nearest = [&](float x) {
      EXPECT_EQ(round_to_e4m3(x, least_normal), nearest_e4m3(x, e)) << x << " under 2^" << e;
    };
    for (int code = 0; code < 126; ++code) {  // numbers, and the middles between neighbours
      const float x = e4m3_to_f32(static_cast<uint8_t>(code)), next = e4m3_to_f32(static_cast<uint8_t>(code + 1));
      for (const float sign : {1.0f, -1.0f}) {
        expect_nearest(sign * std::ldexp(x, e));
        expect_nearest(sign * std::ldexp((x + next) / 2, e));
      }
    }
    for (int k = 0; k < 300; ++k)
      expect_nearest(std::clamp(std::ldexp(normal(random), k % 20 - 12), -1.0f, 1.0f) * std::ldexp(448.0f, e));
  }
}

TEST_P(Linear, RoundsRowsToE4M3WithTheReferencesBits) {
  if (GetParam()->name.ends_with("amx")) return;  // in tile order: amx_test.cc
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr int kRows = 6;
  for (const int cols : {32, 77, 1000}) {
    std::vector<float> x(static_cast<size_t>(kRows * cols)), weight(static_cast<size_t>(cols));
    for (float& v : weight) v = normal(random);
    constexpr float kScales[kRows] = {1, 1e-9f, 300, 0, 1e-38f, 1};
    for (size_t i = 0; i < x.size(); ++i) x[i] = normal(random) * kScales[i / static_cast<size_t>(cols)];
    x.back() = 0x1.01p100f;
    for (const float* norm : {static_cast<const float*>(nullptr), static_cast<const float*>(weight.data())}) {
      const size_t blocks = static_cast<size_t>(cols + kBlockInputs - 1) / kBlockInputs,
                   stride = blocks * sizeof(FloatBlock);
      std::vector<std::byte> expected(stride * kRows), got(stride * kRows);
      QuantizeArgs args{.x = x.data(),
                        .x_stride = static_cast<size_t>(cols),
                        .cols = cols,
                        .norm_weight = norm,
                        .epsilon = 1e-5f,
                        .to = Activations::kBf16,
                        .to_e4m3 = true,
                        .out = expected.data(),
                        .out_stride = stride};
      reference_kernels().quantize(args, 0, kRows);
      args.out = got.data();
      GetParam()->quantize(args, 0, kRows);
      for (size_t b = 0; b < kRows * blocks; ++b) {
        const auto block = [&](std::vector<std::byte>& of) -> FloatBlock& {
          return *reinterpret_cast<FloatBlock*>(&of[b * sizeof(FloatBlock)]);
        };
        undo_pairs(*GetParam(), block(got));
        for (int i = 0; i < kBlockInputs; ++i) {
          const float wanted = block(expected).x[i];
          if (std::isnan(wanted) && std::isnan(block(got).x[i])) continue;
          ASSERT_EQ(std::bit_cast<uint32_t>(wanted), std::bit_cast<uint32_t>(block(got).x[i]))
              << cols << " columns, row " << b / blocks << ", input "
              << b % blocks * kBlockInputs + static_cast<size_t>(i);
          ASSERT_EQ(bf16_to_f32(f32_to_bf16(wanted)), wanted);
        }
        const bool too_large = b / blocks == kRows - 1 && norm == nullptr;
        ASSERT_EQ(std::isnan(block(expected).x[0]), too_large);
      }
    }
  }
}

// What quantize() makes of a row with kInt8x2.
struct SplitRow {
  std::vector<std::byte> memory;
  int blocks;

  SplitRow(const KernelSet& kernels, const std::vector<float>& x)
      : memory(x.size() / kBlockInputs * activation_block_bytes(Activations::kInt8x2)),
        blocks(static_cast<int>(x.size() / kBlockInputs)) {
    kernels.quantize({.x = x.data(),
                      .x_stride = x.size(),
                      .cols = static_cast<int>(x.size()),
                      .to = Activations::kInt8x2,
                      .outlier_ratio = 6,
                      .out = memory.data(),
                      .out_stride = memory.size()},
                     0, 1);
  }
  std::span<const Int8Block> all_blocks() const {
    return {reinterpret_cast<const Int8Block*>(memory.data()), static_cast<size_t>(blocks)};
  }
  std::span<const Outlier> outliers() const {
    return {reinterpret_cast<const Outlier*>(all_blocks().data() + blocks), all_blocks()[0].outliers};
  }
};

TEST_P(Linear, SetsLargeInputsApart) {
  const int blocks = 20;
  std::mt19937 random(15);
  std::vector<float> x = random_inputs(1, blocks * kBlockInputs, random);
  for (float& value : x) value = std::clamp(value, -1.0f, 1.0f);
  const std::pair<int, float> large[] = {{0, 9.0f}, {37, -7.0f}, {38, 30.0f}, {blocks * kBlockInputs - 1, 8.0f}};
  for (const auto& [input, value] : large) x[static_cast<size_t>(input)] = value;
  const SplitRow row(*GetParam(), x);
  ASSERT_EQ(row.outliers().size(), std::size(large));
  for (size_t i = 0; i < std::size(large); ++i) {
    EXPECT_EQ(row.outliers()[i].input, large[i].first);
    EXPECT_EQ(row.outliers()[i].x, large[i].second);
    x[static_cast<size_t>(large[i].first)] = 0;
  }
  for (int b = 0; b < blocks; ++b) {
    const Int8Block& block = row.all_blocks()[static_cast<size_t>(b)];
    EXPECT_LE(block.scale, 1.0f / 127);
    for (int i = 0; i < kBlockInputs; ++i) {
      const int k = b * kBlockInputs + i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)];
      EXPECT_NEAR(block.scale * block.q[i], x[static_cast<size_t>(k)], 0.501f * block.scale) << k;
    }
  }
}

TEST_P(Linear, SetsNothingApartInRowsWithoutAScale) {
  std::vector<float> x(96, 1.0f);
  const auto outliers_with = [&](float large) {
    x[40] = large;
    return SplitRow(*GetParam(), x).outliers().size();
  };
  EXPECT_EQ(outliers_with(50), 1u);
  EXPECT_EQ(outliers_with(1e30f), 1u);
  EXPECT_EQ(outliers_with(std::numeric_limits<float>::infinity()), 0u);
  EXPECT_EQ(outliers_with(std::numeric_limits<float>::quiet_NaN()), 0u);
  for (float& value : x) value = 0;
  EXPECT_EQ(outliers_with(1e-25f), 1u);
  EXPECT_EQ(outliers_with(1e-33f), 0u);  // the mean is below kSmallestOutliers
  EXPECT_EQ(outliers_with(0), 0u);
}

// A tile decodes a column of weights once for all rows that have an outlier there.
TEST_P(Linear, GivesARowTheSameBitsBesideRowsWithOutliers) {
  std::mt19937 random(16);
  const int outputs = 48, cols = 512, rows = 12;
  for (const testing::Weights& w : testing::all_weights()) {
    if (activations_for(Activations::kInt8x2, w.format) != Activations::kInt8x2) continue;
    const auto weights = testing::random_matrix(w, outputs, cols, random);
    std::vector<float> x = random_inputs(rows, cols, random);
    for (int row = 0; row < rows; ++row) x[static_cast<size_t>(row * cols + 7 + row % 5)] = 90.0f;  // shared inputs
    const LinearArgs args = linear_of(weights.matrix, Activations::kInt8x2);
    const auto together = run(*GetParam(), args, x, rows);
    for (int row = 0; row < rows; ++row) {
      const std::vector<float> own(x.begin() + row * cols, x.begin() + (row + 1) * cols);
      const auto alone = run(*GetParam(), args, own, 1);
      ASSERT_EQ(std::memcmp(alone.data(), &together[static_cast<size_t>(row * outputs)], outputs * sizeof(float)), 0)
          << w.name << " row " << row;
    }
  }
}

// More outliers than a tile has room for, more inputs than it can order, and more outliers than a row may have.
TEST_P(Linear, MultipliesManyOutliersToTheReferencesBits) {
  testing::ReferenceResults references;
  struct Case {
    int rows, cols;
    unsigned every;  // about which input is large
  };
  std::mt19937 random(17);
  for (const auto& [rows, cols, every] : {Case{70, 4096, 11}, {6, 40000, 16}, {1, 200000, 11}}) {
    const int outputs = 20;
    const auto weights = testing::random_matrix(TensorType::Q4_1, outputs, cols, random);
    std::vector<float> x = random_inputs(rows, cols, random);
    for (size_t i = 0; i < x.size(); ++i) x[i] = random() % every == 0 ? 100.0f + x[i] : x[i] / 8;
    const LinearArgs args = linear_of(weights.matrix, Activations::kInt8x2);
    const auto& expected = references.next([&, rows = rows] { return run(reference_kernels(), args, x, rows); });
    const auto got = run(*GetParam(), args, x, rows);
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0) << cols;
  }
}

TEST_P(Linear, SetsApartNoMoreThanARowMayHave) {
  std::vector<float> x(200000 / kBlockInputs * kBlockInputs, 1.0f);
  for (size_t i = 0; i < x.size(); i += 11) x[i] = 100;
  const SplitRow row(*GetParam(), x);
  EXPECT_LE(row.outliers().size(), size_t{kMostOutliers});
  EXPECT_GT(row.outliers().size(), size_t{kMostOutliers - kBlockInputs});
  EXPECT_GT(row.all_blocks().back().scale, 99.0f / 127);  // what no longer fits stays in its block
}

// Rows with many outliers, none, infinities and NaN.
TEST_P(Linear, QuantizesRowsWithOutliersToTheReferencesBits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(14);
  for (const int cols : {32, 77, 576}) {
    for (const float threshold : {kInfinity, 6.0f, 0.5f}) {
      std::vector<float> x = random_inputs(3, cols, random);
      const auto at = [&](int row, int col) -> float& { return x[static_cast<size_t>(row * cols + col)]; };
      at(1, 5) = threshold, at(1, 6) = -threshold, at(1, 20) = -70000, at(1, 31) = kInfinity;
      at(2, 3) = std::numeric_limits<float>::quiet_NaN();
      const size_t stride = static_cast<size_t>((cols + 31) / 32) * sizeof(Int8RowBlock);
      std::vector<Int8RowBlock> expected(3 * stride / sizeof(Int8RowBlock)), got(expected.size());
      QuantizeArgs args{.x = x.data(),
                        .x_stride = static_cast<size_t>(cols),
                        .cols = cols,
                        .to = Activations::kInt8Row,
                        .threshold = threshold,
                        .out = reinterpret_cast<std::byte*>(expected.data()),
                        .out_stride = stride};
      reference_kernels().quantize(args, 0, 3);
      args.out = reinterpret_cast<std::byte*>(got.data());
      GetParam()->quantize(args, 0, 3);
      for (size_t i = 0; i < expected.size(); ++i) {
        const Int8RowBlock &a = expected[i], &b = got[i];
        if (i / (expected.size() / 3) == 2) {
          EXPECT_TRUE(std::isnan(a.scale) && std::isnan(b.scale));
          continue;
        }
        ASSERT_EQ(std::memcmp(a.q, b.q, sizeof a.q), 0) << cols << " threshold " << threshold << " block " << i;
        ASSERT_EQ(a.scale, b.scale);
        ASSERT_EQ(a.sum, b.sum);
        ASSERT_EQ(a.outliers, b.outliers);
        for (size_t k = 0; k < kBlockInputs; ++k) {
          if (a.outliers >> k & 1) {
            ASSERT_EQ(a.x[k], b.x[k]);
          }
        }
      }
      EXPECT_NE(expected[stride / sizeof(Int8RowBlock)].outliers & 0x80000060, 0u);
    }
  }
}

// Sums of all magnitudes down to zero: the smallest products and sums vanish, the same ones in every set.
TEST_P(Linear, TreatsSubnormalNumbersAsZeroInBf16) {
  std::mt19937 random(4);
  for (const TensorType type :
       {TensorType::BF16, TensorType::Q4_0, TensorType::Q4_1, TensorType::Q2_K, TensorType::Q6_K, TensorType::F32}) {
    const int outputs = 16, cols = 256, rows = 17;
    const auto weights = testing::random_matrix(type, outputs, cols, random);
    std::vector<float> x = random_inputs(rows, cols, random);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::ldexp(x[i], -110 - static_cast<int>(i / static_cast<size_t>(cols)) * 2);
    const LinearArgs args = linear_of(weights.matrix, Activations::kBf16);
    const auto expected = run(reference_kernels(), args, x, rows), got = run(*GetParam(), args, x, rows);
    EXPECT_EQ(std::memcmp(expected.data(), got.data(), sizeof(float) * got.size()), 0) << name(type);
    for (int row = 0; row < rows; ++row) {  // alone, by other loops
      const std::vector<float> of_row(x.begin() + row * cols, x.begin() + (row + 1) * cols);
      const auto alone = run(*GetParam(), args, of_row, 1);
      EXPECT_EQ(std::memcmp(&expected[static_cast<size_t>(row * outputs)], alone.data(), sizeof(float) * outputs), 0)
          << name(type) << " row " << row;
    }
    for (const float y : got) EXPECT_TRUE(y == 0 || std::isnormal(y)) << y;
    EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](float y) { return y == 0; }));
    EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](float y) { return y != 0; }));
  }
  const volatile float smallest = 0x1p-149f;
  EXPECT_NE(smallest * 2, 0) << "the mode was not restored after the call";
}

TEST_P(Linear, RoundsSpecialValuesToTheReferencesBits) {
  if (GetParam()->name.ends_with("amx")) return;  // rounds in tile order: amx_test.cc
  std::vector<float> x(64);
  const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001, 0x7f7fffff,
                           0xff7fffff, 0x00000001, 0x807fffff, 0x3f808000, 0x3f818000, 0x80000000};
  std::memcpy(x.data() + 3, bits, sizeof bits);
  std::memcpy(x.data() + 40, bits, sizeof bits);
  const size_t stride = 2 * sizeof(FloatBlock);
  std::vector<FloatBlock> expected(2 * kRowGroup), got(2 * kRowGroup);
  QuantizeArgs args{
      .x = x.data(), .x_stride = x.size(), .cols = 64, .to = Activations::kBf16, .out = nullptr, .out_stride = stride};
  args.out = reinterpret_cast<std::byte*>(expected.data());
  reference_kernels().quantize(args, 0, 1);
  args.out = reinterpret_cast<std::byte*>(got.data());
  GetParam()->quantize(args, 0, 1);
  for (size_t b = 0; b < 2; ++b) undo_pairs(*GetParam(), got[b]);
  for (size_t b = 0; b < 2; ++b) EXPECT_EQ(std::memcmp(expected[b].x, got[b].x, sizeof got[b].x), 0) << b;
}

// int8 blocks whose largest number is tiny, infinite or NaN, at any place of the block.
TEST_P(Linear, QuantizesExtremeBlocksToTheReferencesBits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(5);
  for (const float extreme : {0x1p-149f, 0x1p-127f, 0x1p-122f, 0x1p-121f, 0x1.fp-121f, 0x1p-120f, 0x1p-20f, 0x1p120f,
                              std::numeric_limits<float>::max(), kInfinity, kNan}) {
    for (int place = 0; place < kBlockInputs; ++place) {
      std::vector<float> x(kBlockInputs);
      for (size_t i = 0; i < x.size(); ++i)  // some zeros, some numbers up to the extreme
        x[i] = i % 3 == 0 ? 0.0f : std::ldexp(1.0f, -static_cast<int>(random() % 9)) * std::min(extreme, 1e30f);
      x[static_cast<size_t>(place)] = place % 2 == 0 ? extreme : -extreme;
      Int8Block expected{}, got{};
      QuantizeArgs args{.x = x.data(),
                        .x_stride = x.size(),
                        .cols = kBlockInputs,
                        .to = Activations::kInt8,
                        .out = nullptr,
                        .out_stride = sizeof(Int8Block)};
      args.out = reinterpret_cast<std::byte*>(&expected);
      reference_kernels().quantize(args, 0, 1);
      args.out = reinterpret_cast<std::byte*>(&got);
      GetParam()->quantize(args, 0, 1);
      EXPECT_EQ(std::memcmp(&expected, &got, sizeof got), 0)
          << extreme << " in place " << place << ": scales " << expected.scale << " and " << got.scale;
      EXPECT_EQ(std::isfinite(got.scale), std::isfinite(extreme)) << extreme << " in place " << place;
      for (int i = 0; i < kBlockInputs; ++i) {
        const float input = x[static_cast<size_t>(i / 8 * 8 + kPairOrder[static_cast<size_t>(i % 8)])];
        if (std::isfinite(extreme)) {
          ASSERT_NEAR(double{got.scale} * got.q[i], input, std::max(0.502f * got.scale, kSmallestInt8)) << extreme << i;
        }
      }
    }
  }
}

// The largest possible sums, and scales of all kinds: subnormal, zero, the largest, infinite, NaN.
TEST_P(Linear, GivesTheReferencesBitsForExtremeWeights) {
  testing::ReferenceResults references;
  const int outputs = 33, cols = 256, rows = 33;
  std::mt19937 noise(7);
  std::vector<float> x(static_cast<size_t>(rows * cols)), with_outliers = x;
  for (size_t i = 0; i < x.size(); ++i) {  // int8: rows of 127, of alternating signs, of -127
    const size_t row = i / static_cast<size_t>(cols);
    x[i] = row % 3 == 0 || (row % 3 == 1 && i % 2 == 0) ? 1.0f : -1.0f;
    const bool large = i % 16 == row % 16 && row % 5 != 0;  // other inputs than the neighbours'
    with_outliers[i] = large ? x[i] * static_cast<float>(200 + noise() % 100) : x[i];
  }
  for (const testing::Weights& w : testing::all_weights()) {
    if (!has_scales(w.format)) continue;
    constexpr uint16_t kScales[] = {0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff, 0x3c00, 0x7c00, 0xfe00};
    const int bits = code_bits(w.format.codes);
    for (int fill : {0x00, 0xff, 0x80, 0x7f}) {
      if (w.format.codes == Codes::kE4M3) fill &= 0xfe;  // not NaN: packing refuses it
      std::mt19937 random(6);
      const auto weights = testing::random_coded(w, outputs, cols, random, [&](int row, const CodedRow& coded) {
        std::ranges::fill(coded.codes, static_cast<uint8_t>(fill & ((1 << bits) - 1)));
        const uint16_t half = kScales[row % 8], minimum = kScales[row / 8];  // one kind per row
        const uint32_t single = std::bit_cast<uint32_t>(f16_to_f32(half));
        if (w.format.scale == ScaleKind::kF16) std::ranges::fill(coded.scales, half);
        if (w.format.scale == ScaleKind::kF32) std::ranges::fill(coded.scales, row % 8 == 0 ? 1u : single);
        if (w.format.scale == ScaleKind::kE8M0) std::ranges::fill(coded.scales, static_cast<uint32_t>(row % 4 * 84));
        if (w.format.scale == ScaleKind::kE4M3) std::ranges::fill(coded.scales, static_cast<uint32_t>(row % 3 * 0x3f));
        const IntegerRange range = scale_range(w.format);
        const int integer = std::clamp<int>(static_cast<int8_t>(fill), range.least, range.most);
        if (w.format.scale == ScaleKind::kSuper) std::ranges::fill(coded.scales, static_cast<uint32_t>(integer & 0xff));
        if (w.format.zeros == ZeroKind::kF16) std::ranges::fill(coded.minima, minimum);
        if (w.format.zeros == ZeroKind::kF32)
          std::ranges::fill(coded.minima, std::bit_cast<uint32_t>(f16_to_f32(minimum)));
        if (w.format.zeros == ZeroKind::kSuper) std::ranges::fill(coded.minima, static_cast<uint32_t>(fill));
        std::ranges::fill(coded.supers, half);
        std::ranges::fill(coded.super_minima, minimum);
      });
      for (const Activations to : {Activations::kF32, Activations::kBf16, Activations::kInt8, Activations::kInt8x2}) {
        if (activations_for(to, w.format) != to) continue;
        const LinearArgs args = linear_of(weights.matrix, to);
        const std::vector<float>& inputs = to == Activations::kInt8x2 ? with_outliers : x;
        const auto& expected = references.next([&] { return run(reference_kernels(), args, inputs, rows); });
        for (const int count : {1, 9, rows}) {
          const auto got = run(*GetParam(), args, inputs, count);
          for (size_t i = 0; i < got.size(); ++i) {
            if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
            ASSERT_EQ(std::memcmp(&expected[i], &got[i], 4), 0)
                << w.name << " of " << fill << " activations " << static_cast<int>(to) << " rows " << count << " row "
                << i / outputs << " output " << i % outputs << ": " << got[i] << " instead of " << expected[i];
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Linear, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(SelfCheck, NoticesOneBitInOneOutput) {
  EXPECT_TRUE(gives_defined_bits(reference_kernels()));
  KernelSet other = reference_kernels();
  other.linear = [](const LinearArgs& args, int panel_begin, int panel_end, int row_begin, int row_end) {
    reference_kernels().linear(args, panel_begin, panel_end, row_begin, row_end);
    args.y[7] = std::nextafter(args.y[7], 1e30f);
  };
  EXPECT_FALSE(gives_defined_bits(other));
}

}  // namespace
}  // namespace quire
