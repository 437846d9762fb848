#include "quant/panel_format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.h"

namespace quire {
namespace {

struct Row {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales, minima;
  std::vector<uint16_t> supers, super_minima;
};

std::vector<float> decoded(const PanelFormat& format, Row row, float factor = 1) {
  std::vector<float> out(row.codes.size(), std::numeric_limits<float>::quiet_NaN());
  decode_row(format, factor, {row.codes, row.scales, row.minima, row.supers, row.super_minima}, out);
  return out;
}

uint32_t f16(float value) { return f32_to_f16(value); }
uint32_t f32(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t int8(int value) { return static_cast<uint8_t>(value); }

using Values = std::vector<float>;
constexpr uint16_t kOne = 0x3c00;

TEST(DecodeRow, SubtractsTheZeroFromUnsignedCodes) {
  const std::pair<Codes, uint8_t> greatest[] = {
      {Codes::kU2, 3}, {Codes::kU3, 7}, {Codes::kU4, 15}, {Codes::kU5, 31}, {Codes::kU6, 63}};
  for (const auto& [codes, most] : greatest) {
    const int zero = most / 2 + 1;
    const PanelFormat format = {.codes = codes, .scale = ScaleKind::kF32, .zero = zero, .group = 32};
    const auto top = static_cast<float>(most - zero), bottom = static_cast<float>(-zero);
    EXPECT_EQ(decoded(format, {.codes = {0, most, 1}, .scales = {f32(0.1F)}}),
              (Values{0.1F * bottom, 0.1F * top, 0.1F * (bottom + 1)}));
  }
}

TEST(DecodeRow, ReadsSignedCodes) {
  const PanelFormat format = {.codes = Codes::kI8, .scale = ScaleKind::kF16, .group = 32};
  EXPECT_EQ(decoded(format, {.codes = {0, 1, 127, 128, 255}, .scales = {f16(0.5F)}}),
            (Values{0, 0.5F, 63.5F, -64, -0.5F}));
}

TEST(DecodeRow, LooksUpTables) {
  PanelFormat format = {.codes = Codes::kTable4, .scale = ScaleKind::kF16, .group = 32};
  format.table[0] = -127;
  format.table[15] = 113;
  EXPECT_EQ(decoded(format, {.codes = {15, 0}, .scales = {f16(-2)}}), (Values{-226, 254}));
  format.codes = Codes::kFloat4;
  format.table[15] = 0.7F;
  EXPECT_EQ(decoded(format, {.codes = {15, 0}, .scales = {f16(3)}}), (Values{3 * 0.7F, -381}));
}

TEST(DecodeRow, ReadsFloat16AndFloat32Scales) {
  PanelFormat format = {.codes = Codes::kI8, .scale = ScaleKind::kF16, .group = 16};
  EXPECT_EQ(decoded(format, {.codes = {1, 255}, .scales = {0x8001}}), (Values{-0x1p-24F, 0x1p-24F}));
  format.scale = ScaleKind::kF32;
  EXPECT_EQ(decoded(format, {.codes = {3}, .scales = {f32(1e-30F)}}), (Values{3 * 1e-30F}));
}

TEST(DecodeRow, ReadsE8M0ScalesAsHalvesOfPowers) {
  const PanelFormat format = {.codes = Codes::kTable4, .scale = ScaleKind::kE8M0, .group = 16, .table = {1, -12}};
  Row row = {.codes = std::vector<uint8_t>(80, 0), .scales = {0, 1, 2, 128, 254}};
  row.codes[0] = row.codes[16] = 1;
  const Values out = decoded(format, row);
  EXPECT_EQ(out[0], -12 * 0x1p-128F);
  EXPECT_EQ(out[1], 0x1p-128F);
  EXPECT_EQ(out[16], -12 * 0x1p-127F);
  EXPECT_EQ(out[32], 0x1p-126F);
  EXPECT_EQ(out[48], 1);
  EXPECT_EQ(out[79], 0x1p126F);
}

TEST(DecodeRow, MultipliesIntegerScalesWithTheirSuperBlocks) {
  const PanelFormat format = {.codes = Codes::kU6, .scale = ScaleKind::kSuper, .zero = 32, .group = 16};
  Row row = {.codes = std::vector<uint8_t>(272, 33),
             .scales = std::vector<uint32_t>(17, int8(-128)),
             .supers = {kOne, static_cast<uint16_t>(f16(0.1F))}};
  row.scales[15] = int8(127);
  row.scales[16] = int8(-3);
  const Values out = decoded(format, row);
  EXPECT_EQ(out[0], -128);
  EXPECT_EQ(out[239], -128);
  EXPECT_EQ(out[240], 127);
  EXPECT_EQ(out[255], 127);
  EXPECT_EQ(out[256], f16_to_f32(row.supers[1]) * -3);
  EXPECT_EQ(out[271], out[256]);
}

TEST(DecodeRow, AddsFloat16Minima) {
  const PanelFormat format = {.codes = Codes::kU4, .scale = ScaleKind::kF16, .zeros = ZeroKind::kF16, .group = 32};
  EXPECT_EQ(decoded(format, {.codes = {0, 15}, .scales = {f16(0.5F)}, .minima = {f16(-4)}}), (Values{-4, 3.5F}));
}

TEST(DecodeRow, AddsFloat32Minima) {
  const PanelFormat format = {.codes = Codes::kU4, .scale = ScaleKind::kF32, .zeros = ZeroKind::kF32, .group = 32};
  const Row row = {.codes = {0, 15}, .scales = {f32(0.5F)}, .minima = {f32(-4.0001F)}};
  EXPECT_EQ(decoded(format, row), (Values{-4.0001F, 7.5F - 4.0001F}));
}

TEST(DecodeRow, SubtractsIntegerMinimaWithTheirSuperBlocks) {
  const PanelFormat format = {.codes = Codes::kU2, .scale = ScaleKind::kSuper, .zeros = ZeroKind::kSuper, .group = 256};
  const Row row = {.codes = std::vector<uint8_t>(257, 3),
                   .scales = {2, 4},
                   .minima = {5, int8(-6)},
                   .supers = {kOne, kOne},
                   .super_minima = {static_cast<uint16_t>(f16(2)), static_cast<uint16_t>(f16(0.5F))}};
  const Values out = decoded(format, row);
  EXPECT_EQ(out[0], 2 * 3 - 2 * 5);
  EXPECT_EQ(out[256], 4 * 3 + 3);
}

TEST(DecodeRow, SubtractsZeroPointsTimesTheScale) {
  const PanelFormat format = {.codes = Codes::kU4, .scale = ScaleKind::kF32, .zeros = ZeroKind::kInteger, .group = 32};
  const Values out = decoded(format, {.codes = {0, 7, 1}, .scales = {f32(0.1F)}, .minima = {7}});
  EXPECT_EQ(out, (Values{0.1F * -7, 0, 0.1F - 0.1F * 7}));
  EXPECT_NE(out[2], 0.1F * -6) << "the definition rounds twice";
}

TEST(DecodeRow, RoundsTheProductBeforeItAddsTheMinimum) {
  const PanelFormat format = {.codes = Codes::kU4, .scale = ScaleKind::kF32, .zeros = ZeroKind::kF16, .group = 32};
  const float scale = 0.1F, minimum = -1.5F;
  const Values out = decoded(format, {.codes = {15}, .scales = {f32(scale)}, .minima = {f16(minimum)}});
  EXPECT_EQ(out, Values{0});
  EXPECT_NE(std::fma(scale, 15.0F, minimum), 0) << "fused, it would not be 0";
}

TEST(DecodeRow, KeepsTheSignOfZero) {
  const PanelFormat format = {.codes = Codes::kU4, .scale = ScaleKind::kF16, .zero = 8, .group = 32};
  const Values out = decoded(format, {.codes = {8, 9, 7}, .scales = {f16(-0.0F)}});
  EXPECT_TRUE(std::signbit(out[0]));
  EXPECT_TRUE(std::signbit(out[1]));
  EXPECT_FALSE(std::signbit(out[2]));
}

TEST(DecodeRow, HasAScaleForAPartialLastGroup) {
  for (const int group : {16, 32, 96}) {
    const PanelFormat format = {.codes = Codes::kI8, .scale = ScaleKind::kF16, .group = group};
    const auto inputs = static_cast<size_t>(2 * group + 5);
    const Values out = decoded(format, {.codes = std::vector<uint8_t>(inputs, 1), .scales = {f16(1), f16(2), f16(3)}});
    for (size_t i = 0; i < inputs; ++i) EXPECT_EQ(out[i], static_cast<float>(i / static_cast<size_t>(group) + 1));
  }
}

}  // namespace
}  // namespace quire
