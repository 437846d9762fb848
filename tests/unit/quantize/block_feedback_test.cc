#include "quantize/solve/block_feedback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "input_statistics_of.h"
#include "quant/coded_chunk.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

constexpr int kRows = 40;

// The numbers that rows of blocks stand for.
FloatMatrix decoded(TensorType type, std::span<const std::byte> blocks, int rows, int cols) {
  FloatMatrix out(rows, cols);
  const size_t elements = info(type).block_elements, bytes = info(type).block_bytes;
  CodedChunk chunk(panel_format(type));
  for (int r = 0; r < rows; ++r) {
    for (size_t begin = 0; begin < static_cast<size_t>(cols); begin += kSuperInputs) {
      const size_t size = std::min<size_t>(kSuperInputs, static_cast<size_t>(cols) - begin);
      const CodedRow parts = chunk.first(size);
      read_row(type, blocks.data(), parts);
      decode_row(panel_format(type), panel_factor(type), parts, out.row(r).subspan(begin, size));
      blocks = blocks.subspan(size / elements * bytes);
    }
  }
  return out;
}

double loss(const FloatMatrix& weights, const FloatMatrix& written, const InputStatistics& inputs) {
  FloatMatrix difference = weights;
  for (size_t i = 0; i < difference.values.size(); ++i) difference.values[i] -= written.values[i];
  return squared_output_error(difference, inputs.gram);
}

FloatMatrix normal_weights(int rows, int cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  FloatMatrix m(rows, cols);
  for (float& x : m.values) x = 0.05f * normal(random);
  return m;
}

// Inputs that depend on each other: mixtures of a quarter as many numbers, some larger than others, and a little noise.
InputStatistics mixed_inputs(int cols, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const FloatMatrix mixture = normal_weights(cols, cols / 4, random);
  FloatMatrix x(3 * cols, cols);
  for (int r = 0; r < x.rows; ++r) {
    std::vector<float> hidden(static_cast<size_t>(cols) / 4);
    for (float& h : hidden) h = normal(random);
    for (int i = 0; i < cols; ++i) {
      float sum = 0.02f * normal(random);
      for (size_t k = 0; k < hidden.size(); ++k) sum += mixture.row(i)[k] * hidden[k];
      x.row(r)[static_cast<size_t>(i)] = sum * (i % 7 == 0 ? 4 : 1);
    }
  }
  return input_statistics_of(x);
}

std::vector<TensorType> types_with_few_bits() {
  std::vector<TensorType> types;
  for (const TensorType type : writable_types()) {
    if (info(type).block_elements > 1 && code_bits(panel_format(type).codes) < 8) types.push_back(type);
  }
  return types;
}

class Feedbacks : public ::testing::TestWithParam<TensorType> {};

TEST_P(Feedbacks, LoseLessOfTheOutputsThanImportanceAlone) {
  Team team(1);
  std::mt19937 random(3);
  const int cols = info(GetParam()).block_elements == 256 ? 512 : 384;  // 384: the last chunk is partial
  const InputStatistics inputs = mixed_inputs(cols, random);
  const FloatMatrix weights = normal_weights(kRows, cols, random);
  const size_t row_bytes = static_cast<size_t>(cols) / info(GetParam()).block_elements * info(GetParam()).block_bytes;
  std::vector<std::byte> plain(row_bytes * kRows), fed(row_bytes * kRows);
  const std::vector<float> importance(inputs.squares.begin(), inputs.squares.end());
  for (int r = 0; r < kRows; ++r)
    ASSERT_EQ(encode_row(GetParam(), weights.row(r), importance,
                         std::span(plain).subspan(static_cast<size_t>(r) * row_bytes, row_bytes)),
              EncodeResult::kDone);
  const InverseFactor factor = factor_inverse(inputs, false, 0.01, team);
  FloatMatrix moved = weights;
  ASSERT_EQ(BlockFeedback(GetParam(), factor).encode(moved.values, fed), EncodeResult::kDone);
  const double before = loss(weights, decoded(GetParam(), plain, kRows, cols), inputs),
               after = loss(weights, decoded(GetParam(), fed, kRows, cols), inputs);
  EXPECT_LT(after, 0.8 * before);
}

TEST_P(Feedbacks, OfIndependentInputsChangeNothing) {
  Team team(1);
  std::mt19937 random(4);
  constexpr int kCols = 256;
  InputStatistics inputs;
  inputs.cols = kCols;
  inputs.rows = 1;
  inputs.gram.resize(kCols * kCols);
  for (size_t i = 0; i < kCols; ++i) inputs.gram[i * kCols + i] = 2;
  const FloatMatrix weights = normal_weights(4, kCols, random);
  const size_t row_bytes = kCols / info(GetParam()).block_elements * info(GetParam()).block_bytes;
  std::vector<std::byte> plain(row_bytes * 4), fed(row_bytes * 4);
  const std::vector<float> ones(kCols, 1);
  CodedChunk chunk(panel_format(GetParam()));
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(fit_parts(GetParam(), weights.row(r), ones, chunk.first(kCols)));
    write_row(GetParam(), chunk.first(kCols), plain.data() + static_cast<size_t>(r) * row_bytes);
  }
  const InverseFactor factor = factor_inverse(inputs, false, 0.01, team);
  FloatMatrix moved = weights;
  ASSERT_EQ(BlockFeedback(GetParam(), factor).encode(moved.values, fed), EncodeResult::kDone);
  // Ties may be rounded to the other side.
  const double before = loss(weights, decoded(GetParam(), plain, 4, kCols), inputs),
               after = loss(weights, decoded(GetParam(), fed, 4, kCols), inputs);
  EXPECT_NEAR(after, before, 1e-4 * before);
}

INSTANTIATE_TEST_SUITE_P(Types, Feedbacks, ::testing::ValuesIn(types_with_few_bits()),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(BlockFeedback, SaysWhatCannotBeWritten) {
  Team team(1);
  std::mt19937 random(5);
  const InputStatistics inputs = mixed_inputs(256, random);
  const InverseFactor factor = factor_inverse(inputs, false, 0.01, team);
  BlockFeedback feedback(TensorType::Q4_K, factor);
  std::vector<std::byte> out(info(TensorType::Q4_K).block_bytes);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    FloatMatrix weights = normal_weights(1, 256, random);
    weights.values[77] = bad;
    EXPECT_EQ(feedback.encode(weights.values, out), EncodeResult::kNotFinite);
  }
  FloatMatrix weights = normal_weights(1, 256, random);
  for (float& x : weights.values) x *= 1e30f;
  EXPECT_EQ(feedback.encode(weights.values, out), EncodeResult::kTooLarge);
}

TEST(BlockFeedback, LeavesInputsAloneThatAreAlwaysZero) {
  Team team(1);
  std::mt19937 random(6);
  FloatMatrix x(600, 256);
  std::normal_distribution<float> normal;
  for (int r = 0; r < x.rows; ++r) {
    for (size_t i = 0; i < 256; ++i) x.row(r)[i] = i % 2 == 0 ? normal(random) : 0;
  }
  const InputStatistics inputs = input_statistics_of(x);
  const InverseFactor factor = factor_inverse(inputs, false, 0.01, team);
  FloatMatrix weights = normal_weights(1, 256, random), moved = weights;
  std::vector<std::byte> out(info(TensorType::Q5_K).block_bytes);
  ASSERT_EQ(BlockFeedback(TensorType::Q5_K, factor).encode(moved.values, out), EncodeResult::kDone);
  EXPECT_LT(loss(weights, decoded(TensorType::Q5_K, out, 1, 256), inputs),
            0.01 * loss(weights, FloatMatrix(1, 256), inputs));
}

}  // namespace
}  // namespace quire
