// 8-bit floats, as codes and as scales, have the values that torch gives them.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "golden_tensors.h"
#include "quant/panel_format.h"

namespace quire {
namespace {

GoldenTensors float8_codes() { return GoldenTensors(golden_file("formats/hf-layers", "fp8_codes.safetensors")); }

// E8M0 255 is NaN in OCP, and half of it 2^127 here; float32 has no infinities below.
TEST(Float8, HasTheValuesOfTorch) {
  const GoldenTensors golden = float8_codes();
  const auto e4m3 = golden.values<float>("e4m3fn"), e8m0 = golden.values<float>("e8m0");
  ASSERT_EQ(e4m3.size(), 256u);
  for (size_t code = 0; code < 256; ++code) {
    EXPECT_EQ(std::bit_cast<uint32_t>(e4m3_to_f32(static_cast<uint8_t>(code))), std::bit_cast<uint32_t>(e4m3[code]))
        << code;
    if (code < 255) {
      EXPECT_EQ(half_e8m0_to_f32(static_cast<uint8_t>(code)), e8m0[code] / 2) << code;
    }
  }
}

TEST(DecodeRow, ScalesEveryE4M3Code) {
  const auto values = float8_codes().values<float>("e4m3fn");
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  std::vector<uint32_t> scales(2, std::bit_cast<uint32_t>(0.1F));
  scales[1] = std::bit_cast<uint32_t>(-3.0F);
  std::vector<float> out(256);
  decode_row({.codes = Codes::kE4M3, .scale = ScaleKind::kF32, .group = 128}, 1, {.codes = codes, .scales = scales},
             out);
  for (size_t code = 0; code < 256; ++code) {
    const float expected = (code < 128 ? 0.1F : -3.0F) * values[code];
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[code])) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[code]), std::bit_cast<uint32_t>(expected)) << code;
    }
  }
}

TEST(DecodeRow, MultipliesEveryE4M3ScaleWithTheFactor) {
  const auto values = float8_codes().values<float>("e4m3fn");
  std::vector<uint8_t> codes(127 * 16, 1);
  std::vector<uint32_t> scales(127);  // those that are not negative
  std::iota(scales.begin(), scales.end(), 0);
  std::vector<float> out(codes.size());
  decode_row({.codes = Codes::kTable4, .scale = ScaleKind::kE4M3, .group = 16, .table = {0, 3}}, 0.7F,
             {.codes = codes, .scales = scales}, out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], values[i / 16] * 0.7F * 3) << i;
}

}  // namespace
}  // namespace quire
