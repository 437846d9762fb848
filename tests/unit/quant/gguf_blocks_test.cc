#include "quant/gguf_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "base/half.h"
#include "quant/blocks.h"

namespace quire {
namespace {

// A row taken apart, in memory of its own.
struct Parts {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales, minima;
  std::vector<uint16_t> supers, super_minima;

  Parts(const PanelFormat& format, size_t inputs)
      : codes(inputs, 0xee),
        scales(inputs / static_cast<size_t>(format.group), 0xeeeeeeee),
        minima(has_minima(format) ? scales.size() : 0, 0xeeeeeeee),
        supers(format.scale == ScaleKind::kSuper ? inputs / 256 : 0, 0xeeee),
        super_minima(format.zeros == ZeroKind::kSuper ? inputs / 256 : 0, 0xeeee) {}

  CodedRow view() { return {codes, scales, minima, supers, super_minima}; }
};

std::vector<TensorType> block_types() {
  std::vector<TensorType> types;
  for (const auto& t : tensor_types()) {
    if (has_panel_format(t.type) && has_scales(panel_format(t.type))) types.push_back(t.type);
  }
  return types;
}

std::vector<std::byte> random_bytes(size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

class EveryBlockType : public ::testing::TestWithParam<TensorType> {
 protected:
  const TensorTypeInfo& type = info(GetParam());
  const PanelFormat& format = panel_format(GetParam());
};

TEST_P(EveryBlockType, HasWholeGroupsInABlock) {
  EXPECT_TRUE(format.group == 16 || format.group % 32 == 0);
  EXPECT_EQ(type.block_elements % static_cast<uint32_t>(format.group), 0u);
  if (format.scale == ScaleKind::kSuper) {
    EXPECT_EQ(type.block_elements, 256u);
  }
}

TEST_P(EveryBlockType, GivesCodesThatFitTheirBits) {
  const auto blocks = random_bytes(size_t{200} * type.block_bytes);
  Parts parts(format, size_t{200} * type.block_elements);
  read_row(type.type, blocks.data(), parts.view());
  if (code_bits(format.codes) < 8) {
    EXPECT_LT(std::ranges::max(parts.codes), 1 << code_bits(format.codes));
  }
  if (format.scale == ScaleKind::kSuper) {
    EXPECT_LT(std::ranges::max(parts.scales), 256u);
  }
}

// dequantize() reads 256 elements at a time: of one super-block.
TEST_P(EveryBlockType, ReadsEachBlockOfARowInItsPlace) {
  const size_t count = 5 * 256 / type.block_elements;
  auto bytes = random_bytes(1 + count * type.block_bytes);  // unaligned
  const auto row = std::span(bytes).subspan(1);
  Parts parts(format, 5 * 256);
  read_row(type.type, row.data(), parts.view());
  std::vector<float> values(parts.codes.size()), expected(values.size());
  decode_row(format, panel_factor(type.type), parts.view(), values);
  for (size_t i = 0; i < count; ++i) {
    dequantize(type.type, row.subspan(i * type.block_bytes, type.block_bytes),
               std::span(expected).subspan(i * type.block_elements, type.block_elements));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(values[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(GgufBlocks, EveryBlockType, ::testing::ValuesIn(block_types()),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST(PanelFormat, IsKnownForTheLoadableTypes) {
  for (const auto& t : tensor_types()) EXPECT_EQ(has_panel_format(t.type), t.loadable) << t.name;
}

TEST(PanelFormat, OfFloatsIsTheFloatsThemselves) {
  EXPECT_EQ(panel_format(TensorType::F32), PanelFormat{});
  EXPECT_EQ(panel_format(TensorType::F16), PanelFormat{.codes = Codes::kF16});
  EXPECT_EQ(panel_format(TensorType::BF16), PanelFormat{.codes = Codes::kBf16});
}

TEST(ReadRow, TakesAHandWrittenSuperBlockApart) {
  std::vector<std::byte> q4_k(144);
  const auto set = [&](size_t at, unsigned value) { q4_k[at] = static_cast<std::byte>(value); };
  set(1, 0x3c);    // d = 1
  set(3, 0x40);    // dmin = 2
  set(4, 0xc5);    // scale 0 is 5; scale 4 has 3 in its upper bits
  set(8, 0x47);    // minimum 0 is 7; minimum 4 has 1
  set(12, 0xa9);   // scale 4 has 9 in its low bits, minimum 4 has 10
  set(16, 0x2f);   // element 0 is 15, element 32 is 2
  set(143, 0xb4);  // element 223 is 4, element 255 is 11
  Parts parts(panel_format(TensorType::Q4_K), 256);
  read_row(TensorType::Q4_K, q4_k.data(), parts.view());
  EXPECT_EQ(parts.supers[0], 0x3c00);
  EXPECT_EQ(parts.super_minima[0], 0x4000);
  EXPECT_EQ(parts.scales, (std::vector<uint32_t>{5, 0, 0, 0, 57, 0, 0, 0}));
  EXPECT_EQ(parts.minima, (std::vector<uint32_t>{7, 0, 0, 0, 26, 0, 0, 0}));
  std::vector<uint8_t> codes(256);
  codes[0] = 15;
  codes[32] = 2;
  codes[223] = 4;
  codes[255] = 11;
  EXPECT_EQ(parts.codes, codes);
}

TEST(ReadRow, IgnoresTheSignOfNvfp4ScalesAndReadsTheirNanAsZero) {
  std::vector<std::byte> nvfp4(36, std::byte{0x11});  // all elements are 0.5
  nvfp4[0] = std::byte{0x38};                         // 1
  nvfp4[1] = std::byte{0xb8};                         // -1
  nvfp4[2] = std::byte{0x7f};                         // NaN
  nvfp4[3] = std::byte{0xff};                         // -NaN
  std::vector<float> out(64);
  dequantize(TensorType::NVFP4, nvfp4, out);
  EXPECT_EQ(out[0], 0.5F);
  EXPECT_EQ(out[16], 0.5F);
  EXPECT_EQ(out[32], 0);
  EXPECT_TRUE(std::isnan(out[48]));
}

TEST(ReadRow, AcceptsAnEmptyRow) {
  Parts parts(panel_format(TensorType::Q6_K), 0);
  read_row(TensorType::Q6_K, nullptr, parts.view());
}

}  // namespace
}  // namespace quire
