// Rows of weights to blocks: what is lost, and what is refused.
#include "quant/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "quant/blocks.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

std::vector<std::byte> encoded(TensorType type, std::span<const float> row, std::span<const float> importance = {},
                               EncodeResult expected = EncodeResult::kDone) {
  std::vector<std::byte> out(row.size() / info(type).block_elements * info(type).block_bytes);
  EXPECT_EQ(encode_row(type, row, importance, out), expected) << name(type);
  return out;
}

std::vector<float> decoded_row(TensorType type, std::span<const std::byte> blocks, size_t size) {
  std::vector<float> row(size);
  dequantize(type, blocks, row);
  return row;
}

double loss(std::span<const float> row, std::span<const float> written, std::span<const float> importance = {}) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i)
    sum += std::pow(double{row[i]} - written[i], 2) * (importance.empty() ? 1 : importance[i]);
  return sum;
}

double loss_of(TensorType type, std::span<const float> row, std::span<const float> importance = {}) {
  return loss(row, decoded_row(type, encoded(type, row, importance), row.size()), importance);
}

std::vector<float> normal_row(size_t size, float sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

std::vector<float> random_importance(size_t size, unsigned seed) {
  std::vector<float> importance = normal_row(size, 1.5f, seed);
  for (float& w : importance) w = std::exp(w);
  return importance;
}

std::vector<TensorType> block_types_with_writer() {
  std::vector<TensorType> types = writable_types();
  std::erase_if(types, [](TensorType type) { return info(type).block_elements == 1; });
  return types;
}

// Types of vectors from a lattice.
bool is_lattice(TensorType type) {
  constexpr TensorType kLattices[] = {TensorType::IQ1_S, TensorType::IQ1_M,   TensorType::IQ2_XXS, TensorType::IQ2_XS,
                                      TensorType::IQ2_S, TensorType::IQ3_XXS, TensorType::IQ3_S};
  return std::ranges::find(kLattices, type) != std::end(kLattices);
}

class EveryWritableBlock : public testing::TestWithParam<TensorType> {};

// The share of the squares of normal weights that the type may lose. Above the measured loss by a tenth, and below what
// rounding to the largest weight of a group loses.
double allowed_loss(TensorType type) {
  switch (type) {
    case TensorType::Q4_0:
      return 0.0073;
    case TensorType::Q4_1:
      return 0.0053;
    case TensorType::Q5_0:
      return 0.0018;
    case TensorType::Q5_1:
      return 0.00125;
    case TensorType::Q8_0:
      return 0.000035;
    case TensorType::Q2_K:
      return 0.074;
    case TensorType::Q3_K:
      return 0.0227;
    case TensorType::Q4_K:
      return 0.0054;
    case TensorType::Q5_K:
      return 0.00135;
    case TensorType::Q6_K:
      return 0.00032;
    case TensorType::IQ4_NL:
    case TensorType::IQ4_XS:
      return 0.0061;
    case TensorType::MXFP4:
      return 0.0138;
    case TensorType::NVFP4:
      return 0.0088;
    case TensorType::TQ1_0:
    case TensorType::TQ2_0:
      return 0.21;
    case TensorType::Q1_0:
      return 0.40;
    case TensorType::Q2_0:
      return 0.14;
    case TensorType::IQ2_XXS:
      return 0.117;
    case TensorType::IQ2_XS:
      return 0.090;
    case TensorType::IQ2_S:
      return 0.064;
    case TensorType::IQ3_XXS:
      return 0.034;
    case TensorType::IQ3_S:
      return 0.0185;
    case TensorType::IQ1_S:
      return 0.22;
    case TensorType::IQ1_M:
      return 0.19;
    default:
      return 0;
  }
}

TEST_P(EveryWritableBlock, LosesLittleOfNormalWeights) {
  const std::vector<float> row = normal_row(16384, 0.02f, 1);
  const std::vector<float> zeros(row.size());
  EXPECT_LT(loss_of(GetParam(), row) / loss(row, zeros), allowed_loss(GetParam()));
}

TEST_P(EveryWritableBlock, LosesLessWhereItCounts) {
  const std::vector<float> row = normal_row(8192, 0.02f, 2), importance = random_importance(row.size(), 3);
  const double without = loss(row, decoded_row(GetParam(), encoded(GetParam(), row), row.size()), importance);
  const double with = loss_of(GetParam(), row, importance);
  if (GetParam() == TensorType::Q8_0)
    EXPECT_EQ(with, without);
  else
    EXPECT_LT(with, without);
}

TEST_P(EveryWritableBlock, TakesImportanceOfAnyMagnitude) {
  const std::vector<float> row = normal_row(1024, 0.02f, 4), importance = random_importance(row.size(), 5);
  const std::vector<std::byte> expected = encoded(GetParam(), row, importance);
  for (const float factor : {0x1p-100f, 0x1p60f}) {
    std::vector<float> scaled = importance;
    for (float& w : scaled) w *= factor;
    EXPECT_EQ(encoded(GetParam(), row, scaled), expected);
  }
  const std::vector<float> none(row.size());  // counts as the same for all
  EXPECT_EQ(encoded(GetParam(), row, none), encoded(GetParam(), row));
}

TEST_P(EveryWritableBlock, KeepsZerosAndWhatItCanExpress) {
  const std::vector<float> zeros(512);
  EXPECT_EQ(decoded_row(GetParam(), encoded(GetParam(), zeros), zeros.size()), zeros);
  // What a block stands for loses nothing but float16 rounding when it is written again.
  const std::vector<float> row = normal_row(2048, 1.0f, 6);
  const std::vector<float> once = decoded_row(GetParam(), encoded(GetParam(), row), row.size());
  const double again = loss_of(GetParam(), once), first = loss(row, once);
  EXPECT_LT(again, first * 0.05);
}

TEST_P(EveryWritableBlock, SurvivesOutliersAndTinyWeights) {
  for (const float large : {60000.0f, -60000.0f, 1.0f}) {
    std::vector<float> row = normal_row(512, 0.01f, 7);
    row[100] = large;
    if (GetParam() == TensorType::NVFP4 && std::fabs(large) > 2688) {
      encoded(GetParam(), row, {}, EncodeResult::kTooLarge);  // 448 * 6
      continue;
    }
    const std::vector<float> back = decoded_row(GetParam(), encoded(GetParam(), row), row.size());
    EXPECT_TRUE(std::ranges::all_of(back, [](float x) { return std::isfinite(x); })) << large;
    const std::vector<float> without(row.size());
    EXPECT_LT(loss(row, back), loss(row, without)) << large;
  }
  for (const float tiny : {1e-44f, 1e-38f, 1e-30f, 1e-10f, 1e-7f, 1e-5f}) {
    const std::vector<float> row = normal_row(512, tiny, 8);
    const std::vector<float> back = decoded_row(GetParam(), encoded(GetParam(), row), row.size());
    const std::vector<float> none(row.size());
    EXPECT_LE(loss(row, back), loss(row, none) * 1.02) << tiny;
  }
  if (is_lattice(GetParam())) return;  // their lattices lack most vectors of equal elements
  const std::vector<float> same(512, 0.75f), back = decoded_row(GetParam(), encoded(GetParam(), same), same.size());
  ASSERT_TRUE(std::ranges::all_of(back, [](float x) { return std::fabs(x - 0.75f) < 0.75f / 16; })) << back[0];
}

TEST_P(EveryWritableBlock, RefusesWhatIsNotFinite) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> row(256, 1.0f);
    row[77] = bad;
    encoded(GetParam(), row, {}, EncodeResult::kNotFinite);
  }
}

TEST_P(EveryWritableBlock, RefusesScalesThatFloat16CannotHold) {
  if (GetParam() == TensorType::MXFP4) return;  // its scales reach as far as float32
  const std::vector<float> row(256, 1e9f);
  encoded(GetParam(), row, {}, EncodeResult::kTooLarge);
}

TEST_P(EveryWritableBlock, WritesEveryPartThatItReads) {
  const TensorTypeInfo& type = info(GetParam());
  const PanelFormat& format = panel_format(GetParam());
  std::mt19937 random(9);
  for (int trial = 0; trial < 50; ++trial) {
    const std::vector<float> row = normal_row(256, 0.1f, random());
    std::vector<std::byte> first = encoded(GetParam(), row), second(first.size());
    const auto groups = 256 / static_cast<size_t>(format.group), supers = size_t{format.scale == ScaleKind::kSuper};
    std::vector<uint8_t> codes(256);
    std::vector<uint32_t> scales(groups), minima(has_minima(format) ? groups : 0);
    std::vector<uint16_t> super(supers), super_minima(format.zeros == ZeroKind::kSuper ? 1 : 0);
    const CodedRow parts{codes, scales, minima, super, super_minima};
    read_row(type.type, first.data(), parts);
    write_row(type.type, parts, second.data());
    EXPECT_EQ(first, second);
  }
}

TEST_P(EveryWritableBlock, WritesAShortLastChunkAsIfZerosFollowed) {
  const size_t elements = info(GetParam()).block_elements;
  if (elements == 256) return;
  const std::vector<float> whole = normal_row(256 + elements, 0.02f, 10);
  const auto bytes = encoded(GetParam(), whole), tail = encoded(GetParam(), std::span(whole).subspan(256));
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), bytes.end() - static_cast<ptrdiff_t>(tail.size())));
}

INSTANTIATE_TEST_SUITE_P(Types, EveryWritableBlock, testing::ValuesIn(block_types_with_writer()),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(EncodeRow, FindsTheBestScaleOfFewCodes) {
  // Every scale that makes a difference is tried: between two neighbours no code changes.
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> row = normal_row(32, 1.0f, seed);
    std::vector<float> counts(row.size());
    double square = 0;
    for (const float x : row) square += double{x} * x / static_cast<double>(row.size());
    for (size_t i = 0; i < row.size(); ++i)
      counts[i] = static_cast<float>(std::sqrt(std::min(square + double{row[i]} * row[i], 4 * square)));
    double best = INFINITY;
    for (int sign = -1; sign <= 1; sign += 2) {
      for (int step = 1; step < 20000; ++step) {
        const float d = static_cast<float>(sign * step) * 0.00005f;
        double sum = 0;
        for (size_t i = 0; i < row.size(); ++i)
          sum += counts[i] * std::pow(row[i] - d * std::clamp(std::round(row[i] / d), -8.0f, 7.0f), 2);
        best = std::min(best, sum);
      }
    }
    const std::vector<float> written = decoded_row(TensorType::Q4_0, encoded(TensorType::Q4_0, row), row.size());
    EXPECT_LT(loss(row, written, counts), best * 1.03) << seed;
  }
}

TEST(EncodeRow, KeepsTernaryWeightsExactly) {
  std::mt19937 random(11);
  std::vector<float> row(512);
  for (float& x : row) x = (static_cast<float>(random() % 3) - 1) * 0.0625f;
  for (const TensorType type : {TensorType::TQ1_0, TensorType::TQ2_0, TensorType::Q2_0})
    EXPECT_EQ(decoded_row(type, encoded(type, row), row.size()), row) << name(type);
}

TEST(EncodeRow, WritesFloatsToNearestEven) {
  const std::vector<float> row = {1.0f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f, -0x1p-24f};
  const auto halves = decoded_row(TensorType::F16, encoded(TensorType::F16, row), 4);
  EXPECT_EQ(halves, (std::vector<float>{1.0f, 1.0f, 1.0f + 0x1p-9f, -0x1p-24f}));
  EXPECT_EQ(decoded_row(TensorType::F32, encoded(TensorType::F32, row), 4), row);
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
    std::vector<float> row(64);
    for (float& x : row) x = normal(random) * std::exp2(static_cast<float>(trial % 20 - 10));
    const std::vector<float> back = decoded_row(TensorType::Q8_0, encoded(TensorType::Q8_0, row), row.size());
    for (size_t block = 0; block < 64; block += 32) {
      float most = 0;
      for (size_t i = block; i < block + 32; ++i) most = std::max(most, std::fabs(row[i]));
      // Half a code, and the rounding of the scale to F16 (2^-11 of it, or of the smallest normal one).
      const float allowed = most / 127 * 0.5f + std::max(most, 127 * 0x1p-14f) * 0x1p-11f;
      for (size_t i = block; i < block + 32; ++i) EXPECT_NEAR(back[i], row[i], allowed * 1.001f) << i;
    }
  }
}

TEST(EncodeRow, RefusesFloatsThatAreNotFiniteOrTooLarge) {
  for (const TensorType type : {TensorType::F32, TensorType::F16, TensorType::BF16}) {
    std::vector<float> row(32, 1.0f);
    row[7] = NAN;
    encoded(type, row, {}, EncodeResult::kNotFinite);
  }
  std::vector<float> row(32, 1.0f);
  row[3] = 70000;
  encoded(TensorType::F16, row, {}, EncodeResult::kTooLarge);
  encoded(TensorType::BF16, row);
  encoded(TensorType::Q8_0, row);
}

}  // namespace
}  // namespace quire
