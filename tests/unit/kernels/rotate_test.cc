// Rotation and stores: every kernel set writes the reference's bits, and the reference rotates as the formulas say.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "kernels/head_rotation.h"
#include "kernels/kernels.h"
#include "unit/kernels/attention_sequence.h"
#include "unit/kernels/testable_kernels.h"

namespace quire {
namespace {

std::vector<float> random_heads(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

struct Heads {
  int dim, stride, offset, turned;
};
constexpr Heads kHeads[] = {{32, 32, 0, 32},   {64, 64, 0, 16},     {8, 9, 0, 8},
                            {80, 100, 40, 40}, {192, 192, 128, 64}, {7, 7, 3, 2}};
constexpr RopeKind kKinds[] = {RopeKind::kNone, RopeKind::kHalves, RopeKind::kNeighbours};
constexpr int kCount = 5;

std::vector<float> rotated(const KernelSet& kernels, std::vector<float> x, const Heads& h, RopeKind kind,
                           const std::vector<float>& cos_sin, float scale) {
  kernels.rotate({.x = x.data(),
                  .heads = kCount,
                  .head_dim = h.dim,
                  .head_stride = static_cast<size_t>(h.stride),
                  .offset = h.offset,
                  .cos_sin = cos_sin.data(),
                  .rope_dim = h.turned,
                  .kind = kind,
                  .scale = scale});
  return x;
}

class Rotate : public ::testing::TestWithParam<const KernelSet*> {};

TEST_P(Rotate, GivesTheReferencesBits) {
  for (const Heads& h : kHeads) {
    auto x = random_heads(kCount * h.stride, 5);
    x[2] = std::numeric_limits<float>::infinity();
    x[static_cast<size_t>(h.stride + h.offset)] = 0x1p-140f;
    const auto cos_sin = random_heads(h.turned, 6);
    for (const RopeKind kind : kKinds) {
      for (const float scale : {1.0f, 1.37f}) {
        const auto expected = rotated(reference_kernels(), x, h, kind, cos_sin, scale),
                   got = rotated(*GetParam(), x, h, kind, cos_sin, scale);
        for (size_t i = 0; i < x.size(); ++i) {
          if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
          ASSERT_EQ(std::memcmp(&expected[i], &got[i], sizeof(float)), 0)
              << "kind " << static_cast<int>(kind) << " dim " << h.dim << " element " << i;
        }
      }
    }
  }
}

TEST(RotateReference, TurnsPairsOfEachHeadAndLeavesTheRest) {
  for (const Heads& h : kHeads) {
    const auto x = random_heads(kCount * h.stride, 7);
    std::vector<float> cos_sin(static_cast<size_t>(h.turned));
    for (size_t i = 0; i < cos_sin.size(); i += 2) {
      cos_sin[i] = std::cos(static_cast<float>(i + 1));
      cos_sin[i + 1] = std::sin(static_cast<float>(i + 1));
    }
    for (const RopeKind kind : kKinds) {
      const auto got = rotated(reference_kernels(), x, h, kind, cos_sin, 2.0f);
      for (int head = 0; head < kCount; ++head) {
        for (int i = 0; i < h.stride; ++i) {
          const auto at = [&](int element) { return static_cast<size_t>(head * h.stride + element); };
          double expected = i < h.dim ? 2.0 * x[at(i)] : x[at(i)];
          const int pairs = h.turned / 2, turned = i - h.offset;
          if (kind != RopeKind::kNone && turned >= 0 && turned < h.turned) {
            const bool halves = kind == RopeKind::kHalves, first = halves ? turned < pairs : turned % 2 == 0;
            const int pair = halves ? turned % pairs : turned / 2, distance = halves ? pairs : 1;
            const double angle = 2 * pair + 1, a = 2.0 * x[at(first ? i : i - distance)],
                         b = 2.0 * x[at(first ? i + distance : i)];
            expected = first ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
          }
          ASSERT_NEAR(got[at(i)], expected, 1e-5) << "kind " << static_cast<int>(kind) << " element " << i;
        }
      }
    }
  }
}

TEST_P(Rotate, StoresTheReferencesBits) {
  constexpr int kKvHeads = 2, kSlot = 5;
  for (const KvType type : testing::kKvTypes) {
    for (const auto& [key_dim, value_dim] : {std::pair{32, 32}, {64, 16}, {7, 9}, {576, 512}, {192, 128}}) {
      const int k_stride = key_dim + 3, v_stride = value_dim + 1;
      auto k = random_heads(kKvHeads * k_stride, 8), v = random_heads(kKvHeads * v_stride, 9);
      k[1] = std::numeric_limits<float>::quiet_NaN(), v[0] = -std::numeric_limits<float>::infinity();
      k[2] = 0x1p-60f, v[2] = 0x1p-130f;
      const size_t head = kv_head_bytes(type, key_dim, value_dim);
      const auto run = [&, key_dim = key_dim, value_dim = value_dim](const KernelSet& kernels) {
        std::vector<std::byte> memory(2 * head * kKvHeads, std::byte{0x55});
        const KvLayer kv{memory.data(), head * kKvHeads, head, type, kKvHeads, key_dim, value_dim};
        const StoreKvArgs args{.k = k.data(),
                               .v = v.data(),
                               .k_stride = static_cast<size_t>(k_stride),
                               .v_stride = static_cast<size_t>(v_stride),
                               .kv = &kv,
                               .page = 1,
                               .slot = kSlot};
        kernels.prefetch_kv(args);
        kernels.store_kv(args);
        return memory;
      };
      const auto expected = run(reference_kernels());
      EXPECT_EQ(expected, run(*GetParam())) << "dims " << key_dim << ", " << value_dim;
      if (type != KvType::kF32) continue;
      for (int h = 0; h < kKvHeads; ++h) {
        const auto* page = reinterpret_cast<const float*>(expected.data() + head * static_cast<size_t>(kKvHeads + h));
        const int padded = padded_head(key_dim);
        for (int d = 0; d < padded; ++d) {  // zeros after the last
          const float key = d < key_dim ? k[static_cast<size_t>(h * k_stride + d)] : 0.0f;
          ASSERT_EQ(std::memcmp(&page[d * kPageTokens + kSlot], &key, sizeof key), 0) << d;
        }
        for (int d = 0; d < value_dim; ++d) {
          ASSERT_EQ(page[padded * kPageTokens + kSlot * padded_head(value_dim) + d],
                    v[static_cast<size_t>(h * v_stride + d)]);
        }
      }
    }
  }
}

// One page with one key and value of `numbers` in slot 3.
struct Int8Page {
  std::vector<std::byte> memory;
  KvLayer kv;

  Int8Page(const KernelSet& kernels, const std::vector<float>& numbers) {
    const auto dim = static_cast<int>(numbers.size());
    const size_t head = kv_head_bytes(KvType::kInt8, dim, dim);
    memory.assign(head, std::byte{0x55});
    kv = {memory.data(), head, head, KvType::kInt8, 1, dim, dim};
    kernels.store_kv({.k = numbers.data(),
                      .v = numbers.data(),
                      .k_stride = numbers.size(),
                      .v_stride = numbers.size(),
                      .kv = &kv,
                      .page = 0,
                      .slot = 3});
  }
  int8_t key_code(int d) const { return static_cast<int8_t>(memory[static_cast<size_t>(d * kPageTokens + 3)]); }
  int8_t value_code(int d) const {
    return static_cast<int8_t>(memory[kv.values_offset() + static_cast<size_t>(d / 16 * 256 + 3 * 16 + d % 16)]);
  }
  float scale(bool of_value) const {
    float scale;
    std::memcpy(&scale, &memory[kv.scales_offset() + (of_value ? 64 : 0) + 3 * sizeof(float)], sizeof scale);
    return scale;
  }
};

TEST_P(Rotate, StoresInt8CodesWithinHalfAStepOfTheNumbers) {
  for (const float size : {1.0f, 0x1p-50f, 3e30f}) {
    auto numbers = random_heads(40, 11);
    for (float& x : numbers) x *= size;
    const Int8Page page(*GetParam(), numbers);
    float largest = 0;
    for (const float x : numbers) largest = std::max(largest, std::abs(x));
    EXPECT_EQ(page.scale(false), largest / 127.0f);
    EXPECT_EQ(page.scale(true), largest / 127.0f);
    for (int d = 0; d < 40; ++d) {
      const double x = numbers[static_cast<size_t>(d)] / double{largest} * 127;
      EXPECT_NEAR(page.key_code(d), x, 0.500001) << d;
      EXPECT_EQ(page.value_code(d), page.key_code(d)) << d;
    }
    for (int d = 40; d < 48; ++d) EXPECT_EQ(page.key_code(d), 0) << d;
  }
}

TEST_P(Rotate, StoresExtremeNumbersAsInt8AsDefined) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto with = [&](float number) {
    auto numbers = random_heads(16, 12);
    numbers[2] = number;
    return Int8Page(*GetParam(), numbers);
  };
  EXPECT_TRUE(std::isnan(with(-std::nanf("")).scale(true)));
  EXPECT_EQ(with(std::nanf("")).key_code(2), 0);
  EXPECT_EQ(with(-kInfinity).scale(false), kInfinity);
  EXPECT_EQ(with(-kInfinity).key_code(2), -127);
  EXPECT_EQ(with(kInfinity).value_code(2), 127);
  EXPECT_EQ(with(kInfinity).value_code(3), 0);
  const Int8Page tiny(*GetParam(), std::vector<float>(16, 0x1p-57f));
  EXPECT_EQ(tiny.scale(false), 0);
  EXPECT_EQ(tiny.key_code(0), 0);
}

// One page of fp8 or int4 with one key and value in slots 0 to 3 and another in slot 4.
struct CodedPage {
  std::vector<std::byte> memory;
  KvLayer kv;

  CodedPage(const KernelSet& kernels, KvType type, const std::vector<float>& numbers) {
    const auto dim = static_cast<int>(numbers.size());
    const size_t head = kv_head_bytes(type, dim, dim);
    memory.assign(head, std::byte{0x55});
    kv = {memory.data(), head, head, type, 1, dim, dim};
    auto other = numbers;
    std::ranges::reverse(other);
    for (int slot = 0; slot < 5; ++slot) {
      const auto* x = slot < 4 ? &numbers : &other;
      kernels.store_kv({.k = x->data(),
                        .v = x->data(),
                        .k_stride = x->size(),
                        .v_stride = x->size(),
                        .kv = &kv,
                        .page = 0,
                        .slot = slot});
    }
  }
  template <class T>
  T at(size_t byte) const {
    T x;
    std::memcpy(&x, &memory[byte], sizeof x);
    return x;
  }
  float scale(bool of_value, int slot = 3) const {
    return bf16_to_f32(at<uint16_t>(kv.scales_offset() + static_cast<size_t>((of_value ? 32 : 0) + slot * 2)));
  }
  // The numbers of codes as the layouts of kernels.h say.
  float number(bool of_value, int d, int slot = 3) const {
    if (kv.type == KvType::kFp8) {
      const int in_line = of_value ? d / 16 * 256 + slot * 16 + d % 16 : d * 16 + slot;
      return e4m3_to_f32(at<uint8_t>((of_value ? kv.values_offset() : 0) + static_cast<size_t>(in_line))) / 256;
    }
    const int eight = of_value ? (d / 16 * 2 + slot / 8) * 16 + d % 16 : d / 8 * 16 + slot,
              i = (of_value ? slot : d) % 8;
    const auto word = at<uint32_t>((of_value ? kv.values_offset() : 0) + static_cast<size_t>(eight) * 4);
    return static_cast<float>(int4_number(static_cast<int>(word >> int4_shift(i) & 15)));
  }
  // Int4: the rotated number that was stored.
  double stored(bool of_value, int d, int slot) const {
    const double own = double{number(of_value, d, slot)} * double{scale(of_value, slot)};
    if (of_value) return own;
    double mean = 0;
    for (int t = 0; t < slot; ++t) mean += stored(false, d, t) / slot;
    return mean + own;
  }
};

TEST_P(Rotate, StoresTheNearestE4m3) {
  for (const float size : {1.0f, 0x1p-40f, 3e30f}) {
    auto numbers = random_heads(40, 13);
    numbers[7] = 0, numbers[8] = 1e-6f, numbers[9] = 3e-5f;  // nothing, below half the smallest, a subnormal
    for (float& x : numbers) x *= size;
    const CodedPage page(*GetParam(), KvType::kFp8, numbers);
    float largest = 0;
    for (const float x : numbers) largest = std::max(largest, std::abs(x));
    const float scale = bf16_to_f32(f32_to_bf16(largest / 1.75f));
    EXPECT_EQ(page.scale(false), scale);
    EXPECT_EQ(page.scale(true, 4), scale);
    for (int d = 0; d < 40; ++d) {
      const double wanted = double{numbers[static_cast<size_t>(d)]} / double{scale};
      double nearest = 1e30;
      for (int code = 0; code < 256; ++code) {
        if ((code & 127) != 127)
          nearest = std::min(nearest, std::abs(double{e4m3_to_f32(static_cast<uint8_t>(code))} / 256 - wanted));
      }
      EXPECT_NEAR(std::abs(double{page.number(false, d)} - wanted), nearest, 1e-9) << size << " " << d;
      EXPECT_EQ(page.number(true, d), page.number(false, d)) << d;
      EXPECT_EQ(page.number(true, 39 - d, 4), page.number(false, d)) << d;
    }
  }
}

// A head with one large number comes back with an error that is small for the large and the small numbers alike, and a key
// that resembles those before it in its page with a much smaller one.
TEST_P(Rotate, StoresRotatedHeadsAsInt4) {
  for (const int dim : {64, 40, 96, 7, 576}) {
    auto numbers = random_heads(dim, 14);
    numbers[static_cast<size_t>(dim / 2)] = 20;
    const CodedPage page(*GetParam(), KvType::kInt4, numbers);
    const int block = dim & -dim;
    const auto lost = [&](bool of_value, int slot) {
      double errors = 0;
      for (int d = 0; d < dim; ++d) {  // the matrix of Sylvester: the sign is the parity of common bits
        double back = 0;
        for (int n = 0; n < block; ++n) {
          const double sign = std::popcount(static_cast<unsigned>(d % block & n)) % 2 ? -1 : 1;
          back += sign * page.stored(of_value, d / block * block + n, slot) / std::sqrt(block);
        }
        if (block > 1) back *= double{kRotationSigns[static_cast<size_t>(d)]};
        errors += std::pow(back - double{numbers[static_cast<size_t>(slot < 4 ? d : dim - 1 - d)]}, 2);
      }
      return std::sqrt(errors / dim);
    };
    // Without a rotation, steps of 20 / 7.5 would lose their twelfth root: 0.77.
    for (const bool of_value : {false, true}) EXPECT_LT(lost(of_value, 0), block >= 32 ? 0.45 : 1.5) << dim;
    EXPECT_LT(lost(false, 3), 0.1 * lost(false, 0)) << dim;
    EXPECT_LT(lost(true, 4), block >= 32 ? 0.45 : 1.5) << dim;
  }
}

TEST_P(Rotate, StoresExtremeNumbersAsFp8AndInt4AsDefined) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const KvType type : {KvType::kFp8, KvType::kInt4}) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      auto numbers = random_heads(16, 12);
      numbers[2] = bad;
      const CodedPage page(*GetParam(), type, numbers);
      EXPECT_TRUE(std::isnan(page.scale(false)));
      EXPECT_TRUE(std::isnan(page.scale(true)));
    }
    const CodedPage tiny(*GetParam(), type, std::vector<float>(16, 0x1p-61f));
    EXPECT_EQ(tiny.scale(false), 0);
    const CodedPage zero(*GetParam(), type, std::vector<float>(16, 0.0f));
    EXPECT_EQ(zero.scale(true), 0);
    const CodedPage huge(*GetParam(), type, std::vector<float>(16, 3e38f / 16));
    EXPECT_TRUE(std::isfinite(huge.scale(true)));
  }
}

INSTANTIATE_TEST_SUITE_P(KernelSets, Rotate, ::testing::ValuesIn(testing::testable_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
