#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/half.h"

namespace quire {
namespace {

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }

TEST(Half, ConvertsEveryValueToFloatAndBack) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float f = f16_to_f32(half);
    const bool is_nan = (h & 0x7fff) > 0x7c00;
    EXPECT_EQ(std::isnan(f), is_nan);
    EXPECT_EQ(f32_to_f16(f), is_nan ? (h | 0x200) : h) << h;
    if (!is_nan && (h & 0x7fff) != 0x7c00) {  // the definition
      const int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
      const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(f, (h & 0x8000) ? -value : value);
      EXPECT_EQ(std::signbit(f), (h & 0x8000) != 0);
    }
    const float b = bf16_to_f32(half);
    EXPECT_EQ(f32_to_bf16(b), (h & 0x7fff) > 0x7f80 ? (h | 0x40) : h);
    EXPECT_EQ(bits(b), h << 16);
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {  // between each half and the next
    const float low = f16_to_f32(static_cast<uint16_t>(h)), high = f16_to_f32(static_cast<uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(f32_to_f16(middle), h + (h & 1)) << h;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), h);
    EXPECT_EQ(f32_to_f16(-std::nextafter(middle, 1e9f)), (h + 1) | 0x8000);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(-1e-30f), 0x8000);
  for (uint32_t b = 0; b < 0x7f7f; ++b) {
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(b << 16 | 0x8000)), b + (b & 1));
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(b << 16 | 0x7fff)), b);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(b << 16 | 0x8001)), b + 1);
  }
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(TensorType, IsFoundByIdAndName) {
  for (const TensorTypeInfo& t : tensor_types()) {
    EXPECT_EQ(&info(t.type), &t);
    EXPECT_EQ(tensor_type_from_name(t.name), t.type);
    if (t.ggml_id >= 0) {
      EXPECT_EQ(tensor_type_from_ggml(static_cast<uint32_t>(t.ggml_id)), t.type);
    }
  }
  EXPECT_EQ(tensor_type_from_ggml(43), std::nullopt);
  EXPECT_EQ(tensor_type_from_name("Q9_0"), std::nullopt);
}

TEST(TensorType, DetectsOverflowingSizes) {
  using Shape = std::vector<uint64_t>;
  EXPECT_EQ(tensor_bytes(TensorType::Q4_K, Shape{3, 512}), 3u * 2 * 144);
  EXPECT_EQ(tensor_bytes(TensorType::F32, Shape{}), 4u);
  EXPECT_EQ(tensor_bytes(TensorType::Q4_0, Shape{}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::Q4_0, Shape{64, 33}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::F32, Shape{uint64_t{1} << 62}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::U8, Shape{uint64_t{1} << 32, uint64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(tensor_bytes(TensorType::U8, Shape{~uint64_t{0}}), ~uint64_t{0});
  EXPECT_EQ(tensor_bytes(TensorType::F64, Shape{0, 5}), 0u);
}

TEST(Dequantize, RefusesTypesWithoutAFormat) {
  const std::array<std::byte, 1024> block{};
  std::array<float, 256> out;
  try {
    dequantize(TensorType::I32, block, out);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("I32"), std::string::npos);
  }
}

TEST(Dequantize, ReadsAHandWrittenBlock) {
  std::array<std::byte, 18> q4_0{};  // d = 2, first byte: element 0 is 15, element 16 is 1
  q4_0[1] = std::byte{0x40};
  q4_0[2] = std::byte{0x1f};
  std::array<float, 32> out;
  dequantize(TensorType::Q4_0, q4_0, out);
  EXPECT_EQ(out[0], 14.0f);
  EXPECT_EQ(out[16], -14.0f);
  EXPECT_EQ(out[1], -16.0f);
}

TEST(Dequantize, AcceptsZeroBlocks) { EXPECT_NO_THROW(dequantize(TensorType::Q6_K, {}, {})); }

}  // namespace
}  // namespace quire
