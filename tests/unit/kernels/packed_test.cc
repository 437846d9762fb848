// Packing finds numbers that are none.

#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "unit/kernels/random_panels.h"

namespace quire {
namespace {

constexpr int kPackedRows = 37, kCols = 512;  // the last panel is not full

// The bits of a number that is none, in a scale or minimum of `bytes` bytes.
uint32_t none_of(size_t bytes, bool infinity) {
  return bytes == 4 ? (infinity ? 0xFF80'0000 : 0x7F80'0001) : infinity ? 0xFC00 : 0x7C01;
}

class IsFinite : public ::testing::TestWithParam<testing::Weights> {};

TEST_P(IsFinite, HoldsForNumbers) {
  std::mt19937 random(1);
  const auto m = testing::random_matrix(GetParam(), kPackedRows, kCols, random);
  for (int panel = 0; panel < m.matrix.panels(); ++panel) EXPECT_TRUE(is_finite(m.matrix, panel));
}

// Spoils one number of a coded row; false: none of its parts can be NaN or infinite.
bool spoil(const PanelFormat& f, int part, bool infinity, std::mt19937& random, const CodedRow& row) {
  const auto any = [&random](auto values) -> auto& { return values[random() % values.size()]; };
  switch (part) {
    case 0:  // the scale
      switch (f.scale) {
        case ScaleKind::kF16:
          any(row.scales) = none_of(2, infinity);
          break;
        case ScaleKind::kF32:
          any(row.scales) = none_of(4, infinity);
          break;
        case ScaleKind::kE8M0:
          any(row.scales) = 0xFF;
          break;
        case ScaleKind::kE4M3:
          any(row.scales) = 0x7F;
          break;
        default:
          any(row.supers) = static_cast<uint16_t>(none_of(2, infinity));
      }
      return true;
    case 1:  // the minimum
      if (f.zeros == ZeroKind::kF16) return any(row.minima) = none_of(2, infinity), true;
      if (f.zeros == ZeroKind::kF32) return any(row.minima) = none_of(4, infinity), true;
      if (f.zeros == ZeroKind::kSuper) return any(row.super_minima) = static_cast<uint16_t>(none_of(2, infinity)), true;
      return false;
    default:  // the code
      if (f.codes == Codes::kE4M3) return any(row.codes) = infinity ? 0xFF : 0x7F, true;
      return false;
  }
}

TEST_P(IsFinite, FindsEveryNanAndInfinity) {
  std::mt19937 random(2);
  const testing::Weights& w = GetParam();
  for (int i = 0; i < 200; ++i) {
    const int bad = i == 0 ? 0 : i == 1 ? kPackedRows - 1 : static_cast<int>(random() % kPackedRows);
    bool spoiled = false;
    testing::OwnedMatrix m;
    if (has_scales(w.format)) {
      m = testing::random_coded(w, kPackedRows, kCols, random, [&](int row, const CodedRow& coded) {
        if (row == bad) spoiled = spoil(w.format, i % 3, i % 2 == 0, random, coded);
      });
    } else {
      std::vector<std::byte> bytes = testing::random_source(*w.type, kPackedRows, kCols, random);
      const size_t size = info(*w.type).block_bytes;
      const uint32_t none = *w.type == TensorType::BF16 ? (i % 2 ? 0xFF80 : 0x7F81) : none_of(size, i % 2 == 0);
      std::memcpy(&bytes[(static_cast<size_t>(bad) * kCols + random() % kCols) * size], &none, size);
      m = testing::pack(*w.type, kPackedRows, kCols, bytes);
      spoiled = true;
    }
    for (int panel = 0; panel < m.matrix.panels(); ++panel)
      EXPECT_EQ(is_finite(m.matrix, panel), !(spoiled && panel == bad / kPanel)) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, IsFinite, ::testing::ValuesIn(testing::all_weights()),
                         [](const auto& w) { return w.param.name; });

}  // namespace
}  // namespace quire
