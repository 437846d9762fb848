// What encoding loses, as it is measured while tensors are written.
#include "quantize/encoding_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "quant/blocks.h"

namespace quire {
namespace {

std::vector<float> normal_numbers(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

TEST(EncodingErrors, AreThoseOfTheBytesThatAreWritten) {
  constexpr size_t kRows = 8, kCols = 256, kBytes = kCols / 32 * 18;
  const std::vector<float> weights = normal_numbers(kRows * kCols);
  EncodingError error(2);
  const RowEncoding watched = error.watch(plain_encoding(TensorType::Q4_0, {}), TensorType::Q4_0);
  double lost = 0, size = 0;
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> numbers(weights.begin() + static_cast<ptrdiff_t>(row * kCols),
                               weights.begin() + static_cast<ptrdiff_t>((row + 1) * kCols));
    const std::vector<float> before = numbers;
    std::vector<std::byte> plain(kBytes), bytes(kBytes);
    ASSERT_EQ(encode_row(TensorType::Q4_0, before, {}, plain), EncodeResult::kDone);
    ASSERT_EQ(watched.encode(0, numbers, bytes, static_cast<int>(row % 2)), EncodeResult::kDone);
    EXPECT_EQ(bytes, plain);
    std::vector<float> after(kCols);
    dequantize(TensorType::Q4_0, bytes, after);
    for (size_t i = 0; i < kCols; ++i) {
      lost += std::pow(double{before[i]} - after[i], 2);
      size += std::pow(double{before[i]}, 2);
    }
  }
  EXPECT_NEAR(error.relative(), std::sqrt(lost / size), 1e-12);
  EXPECT_NEAR(error.relative(), 0.08, 0.01);
}

TEST(EncodingErrors, CompareWithTheRowsBeforeTheyAreOverwritten) {
  EncodingError error(1);
  RowEncoding halves{[](size_t, std::span<float> rows, std::span<std::byte> out, int) {
                       for (float& x : rows) x /= 2;
                       std::ranges::copy(std::as_bytes(rows), out.begin());
                       return EncodeResult::kDone;
                     },
                     2};
  const RowEncoding watched = error.watch(halves, TensorType::F32);
  EXPECT_EQ(watched.rows_together, 2);
  std::vector<float> rows{4, -8, 2, 6};
  std::vector<std::byte> out(16);
  ASSERT_EQ(watched.encode(0, rows, out, 0), EncodeResult::kDone);
  EXPECT_DOUBLE_EQ(error.relative(), 0.5);
  error.watch(halves, TensorType::F32);
  EXPECT_EQ(error.relative(), 0);  // of no rows
}

TEST(EncodingErrors, LeaveFailuresAsTheyAre) {
  EncodingError error(1);
  const RowEncoding watched = error.watch(plain_encoding(TensorType::F16, {}), TensorType::F16);
  std::vector<float> row{1e30F, 1};
  std::vector<std::byte> out(4);
  EXPECT_EQ(watched.encode(0, row, out, 0), EncodeResult::kTooLarge);
  EXPECT_EQ(error.relative(), 0);
}

}  // namespace
}  // namespace quire
