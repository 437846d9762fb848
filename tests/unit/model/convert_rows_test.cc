// Rows on their way from one file's type to another's.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/half.h"
#include "model/convert/rows.h"
#include "quant/blocks.h"

namespace quire {
namespace {

std::vector<std::byte> encoded(TensorType type, std::span<const float> row, bool sound = true) {
  std::vector<std::byte> out(row.size() / info(type).block_elements * info(type).block_bytes);
  EXPECT_EQ(encode_row(type, row, out), sound);
  return out;
}

TEST(EncodeRow, RoundsQ8CodesHalfAwayFromZero) {
  std::vector<float> row(32, 0.0f);
  row[0] = 127, row[1] = 0.5f, row[2] = -0.5f, row[3] = 2.5f, row[4] = -1.49f, row[5] = -127;  // the scale is 1
  const auto out = encoded(TensorType::Q8_0, row);
  uint16_t scale = 0;
  std::memcpy(&scale, out.data(), 2);
  EXPECT_EQ(f16_to_f32(scale), 1);
  const int expected[] = {127, 1, -1, 3, -1, -127, 0};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(static_cast<int8_t>(out[2 + i]), expected[i]) << i;
}

TEST(EncodeRow, KeepsQ8WithinHalfAScale) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> row(64), back(64);
    for (float& x : row) x = normal(random) * std::exp2(static_cast<float>(trial % 20 - 10));
    dequantize(TensorType::Q8_0, encoded(TensorType::Q8_0, row), back);
    for (size_t block = 0; block < 64; block += 32) {
      float most = 0;
      for (size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(row[i]));
      // Half a code, and the rounding of the scale to F16 (2^-11 of it, or of the smallest normal one).
      const float allowed = most / 127 * 0.5f + std::max(most, 127 * 0x1p-14f) * 0x1p-11f;
      for (size_t i = block; i < block + 32; ++i) EXPECT_NEAR(back[i], row[i], allowed * 1.001f) << i;
    }
  }
}

TEST(EncodeRow, WritesZerosForSubnormalBlocks) {
  const std::vector<float> row(32, 1e-44f);
  for (const std::byte b : encoded(TensorType::Q8_0, row)) EXPECT_EQ(b, std::byte{0});
}

TEST(EncodeRow, RefusesWhatIsNotFinite) {
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16, TensorType::Q8_0}) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> row(32, 1.0f);
      row[7] = bad;
      encoded(type, row, false);
    }
  }
}

TEST(EncodeRow, RefusesWhatF16CannotHold) {
  std::vector<float> row(32, 1.0f);
  row[3] = 70000;
  encoded(TensorType::F16, row, false);
  encoded(TensorType::BF16, row);
  encoded(TensorType::Q8_0, row);
  row[3] = 1e7f * 127;
  encoded(TensorType::Q8_0, row, false);  // its scale is F16
}

TEST(ReadRow, TakesColumnsOfTransposedMatrices) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  TensorView view{.name = "t", .type = TensorType::F32, .shape = {3, 2}, .bytes = std::as_bytes(std::span(values))};
  std::vector<float> out(3);
  read_row({&view, 0, 1, 2, 3, true}, 1, 0, out);
  EXPECT_EQ(out, (std::vector<float>{2, 4, 6}));
  out.resize(2);
  read_row({&view, 0, 1, 3, 2, false}, 2, 0, out);
  EXPECT_EQ(out, (std::vector<float>{5, 6}));
  view.shape = {3, 1, 2};
  read_row({&view, 1, 3, 1, 2, false}, 0, 0, out);
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace quire
