// What kernels compute on the emulated device, next to plain loops.
#include "cuda/emulated/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "cuda/alphabet/alphabet.h"
#include "error_of.h"
#include "unit/cuda/device_values.h"

namespace quire::cuda {
namespace {

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<uint16_t> random_bf16(size_t count, uint32_t seed) {
  std::vector<uint16_t> values;
  for (const float v : random_floats(count, seed)) values.push_back(f32_to_bf16(v));
  return values;
}

// As documented in emulated/matrices.h.
float sum_of_products(float start, size_t count, auto&& a, auto&& b) {
  double sum = start;
  for (size_t k = 0; k < count; ++k) sum += static_cast<double>(a(k)) * b(k);
  return static_cast<float>(sum);
}

struct ScaleRows {
  static constexpr const char* kName = "scale_rows";
  static constexpr int kThreads = 64;
  Global<float> x;
  Global<const float> factors;
  int columns;
  DEVICE void operator()() const {
    const float factor = factors[block_x()];
    for (int i = thread(); i < columns; i += threads()) x[block_x() * columns + i] *= factor;
  }
};

TEST(EmulatedDevice, RunsBlocksAndThreads) {
  const auto device = open(0);
  const auto x = random_floats(3 * 100, 1);
  const OnDevice<float> memory(*device, x), factors(*device, std::vector<float>{2, 3, 5});
  run_alone(*device, {.x = 3, .threads = 64}, ScaleRows{memory.data(), factors.data(), 100});
  const auto result = memory.values();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(result[i], x[i] * (i < 100 ? 2 : i < 200 ? 3 : 5)) << i;
}

TEST(EmulatedDevice, HasTwoDevices) {
  EXPECT_EQ(error_of([] { open(64); }),
            "there is no emulated device 64; there are 0, with all checks, and 1 to 63, with few");
}

struct SumBlock {
  static constexpr const char* kName = "sum_block";
  static constexpr int kThreads = 256;
  Global<const int> x;
  Global<int> sum, neighbours, votes;
  DEVICE void operator()() const {
    const int value = x[thread()];
    int total = value;
    for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
    const Shared<int> totals = shared<int>(0);
    if (lane() == 0) totals[warp()] = total;
    sync_block();
    if (thread() == 0) {
      total = 0;
      for (int w = 0; w < threads() / 32; ++w) total += totals[w];
      sum[0] = total;
    }
    neighbours[3 * thread()] = shuffle(value, lane() + 1);
    neighbours[3 * thread() + 1] = shuffle_up(value, 2);
    neighbours[3 * thread() + 2] = shuffle_down(value, 3);
    const uint32_t odd = ballot(value % 2 != 0);
    if (lane() == 0) votes[warp()] = static_cast<int>(odd);
  }
};

TEST(EmulatedDevice, ShufflesAndVotes) {
  const auto device = open(0);
  std::vector<int> x(96);
  std::iota(x.begin(), x.end(), 1);
  const OnDevice<int> values(*device, x), sum(*device, 1), neighbours(*device, 3 * 96), votes(*device, 3);
  run_alone(*device, {.threads = 96, .shared_bytes = 12},
            SumBlock{values.data(), sum.data(), neighbours.data(), votes.data()});
  EXPECT_EQ(sum.values()[0], 96 * 97 / 2);
  const auto near = neighbours.values();
  for (int t = 0; t < 96; ++t) {
    const int lane = t % 32;
    const auto* of_thread = &near[static_cast<size_t>(3 * t)];
    EXPECT_EQ(of_thread[0], 1 + t - lane + (lane + 1) % 32);
    EXPECT_EQ(of_thread[1], 1 + (lane >= 2 ? t - 2 : t));
    EXPECT_EQ(of_thread[2], 1 + (lane + 3 < 32 ? t + 3 : t));
  }
  EXPECT_EQ(votes.values(), std::vector<int>(3, 0x55555555));
}

// a [16][16 or 32 of int8] by rows, b the columns [8][..], d [16][8]: by mma, from fragments read by their definition.
template <class Number>
struct MultiplyTile {
  static constexpr const char* kName = "multiply_tile";
  static constexpr int kThreads = 32;
  Global<const Number> a, b;
  Global<float> d;
  int float16;
  DEVICE void operator()() const {
    const int g = lane() / 4, i = lane() % 4;
    constexpr int kPerWord = 4 / sizeof(Number), kDepth = 8 * kPerWord;
    uint32_t wa[4], wb[2];
    for (int w = 0; w < 4; ++w)
      wa[w] = load<1>(a + (g + w % 2 * 8) * kDepth + w / 2 * (kDepth / 2) + kPerWord * i).w[0];
    for (int w = 0; w < 2; ++w) wb[w] = load<1>(b + g * kDepth + w * (kDepth / 2) + kPerWord * i).w[0];
    const auto at = [&](int j) { return (g + j / 2 * 8) * 8 + 2 * i + j % 2; };
    if constexpr (sizeof(Number) == 1) {
      int32_t sums[4];
      for (int j = 0; j < 4; ++j) sums[j] = static_cast<int32_t>(d[at(j)]);
      multiply_i8(sums, wa, wb);
      for (int j = 0; j < 4; ++j) d[at(j)] = static_cast<float>(sums[j]);
    } else {
      float sums[4];
      for (int j = 0; j < 4; ++j) sums[j] = d[at(j)];
      if (float16) {
        multiply_f16(sums, wa, wb);
      } else {
        multiply_bf16(sums, wa, wb);
      }
      for (int j = 0; j < 4; ++j) d[at(j)] = sums[j];
    }
  }
};

TEST(EmulatedDevice, MultipliesBf16) {
  const auto device = open(0);
  const auto a = random_bf16(16 * 16, 1), b = random_bf16(8 * 16, 2);
  const auto start = random_floats(16 * 8, 3);
  const OnDevice<uint16_t> ma(*device, a), mb(*device, b);
  const OnDevice<float> md(*device, start);
  run_alone(*device, {.threads = 32}, MultiplyTile<uint16_t>{ma.data(), mb.data(), md.data(), 0});
  const auto d = md.values();
  for (size_t r = 0; r < 16; ++r) {
    for (size_t c = 0; c < 8; ++c) {
      const float expected = sum_of_products(
          start[r * 8 + c], 16, [&](size_t k) { return bf16_to_f32(a[r * 16 + k]); },
          [&](size_t k) { return bf16_to_f32(b[c * 16 + k]); });
      ASSERT_EQ(d[r * 8 + c], expected) << r << ", " << c;
    }
  }
}

TEST(EmulatedDevice, MultipliesF16) {
  const auto device = open(0);
  std::vector<uint16_t> a, b;
  for (const float v : random_floats(16 * 16, 4)) a.push_back(f32_to_f16(v));
  for (const float v : random_floats(8 * 16, 5)) b.push_back(f32_to_f16(v));
  const OnDevice<uint16_t> ma(*device, a), mb(*device, b);
  const OnDevice<float> md(*device, size_t{16 * 8});
  run_alone(*device, {.threads = 32}, MultiplyTile<uint16_t>{ma.data(), mb.data(), md.data(), 1});
  const auto d = md.values();
  for (size_t r = 0; r < 16; ++r) {
    for (size_t c = 0; c < 8; ++c) {
      const float expected = sum_of_products(
          0, 16, [&](size_t k) { return f16_to_f32(a[r * 16 + k]); },
          [&](size_t k) { return f16_to_f32(b[c * 16 + k]); });
      ASSERT_EQ(d[r * 8 + c], expected) << r << ", " << c;
    }
  }
}

TEST(EmulatedDevice, MultipliesI8) {
  const auto device = open(0);
  std::mt19937 random(6);
  std::vector<int8_t> a(16 * 32), b(8 * 32);
  for (int8_t& v : a) v = static_cast<int8_t>(random());
  for (int8_t& v : b) v = static_cast<int8_t>(random());
  const OnDevice<int8_t> ma(*device, a), mb(*device, b);
  const OnDevice<float> md(*device, std::vector<float>(16 * 8, 7));
  run_alone(*device, {.threads = 32}, MultiplyTile<int8_t>{ma.data(), mb.data(), md.data(), 0});
  const auto d = md.values();
  for (size_t r = 0; r < 16; ++r) {
    for (size_t c = 0; c < 8; ++c) {
      int sum = 7;
      for (size_t k = 0; k < 32; ++k) sum += a[r * 32 + k] * b[c * 32 + k];
      ASSERT_EQ(d[r * 8 + c], static_cast<float>(sum)) << r << ", " << c;
    }
  }
}

// Copies count matrices of 8 rows of 8 numbers to shared memory, 80 bytes a row, and loads them.
template <int N>
struct LoadTiles {
  static constexpr const char* kName = "load_tiles";
  static constexpr int kThreads = 32;
  Global<const uint16_t> tiles;  // [N][8][8]
  Global<uint32_t> words;        // [plain, transposed][lane][N]
  DEVICE void operator()() const {
    const Shared<uint16_t> rows = shared<uint16_t>(0);
    if (lane() < 8 * N) copy_async<16>(rows + lane() * 40, tiles + lane() * 8);
    commit_copies();
    wait_copies<0>();
    sync_warp();
    uint32_t plain[N], transposed[N];
    const int row = lane() % (8 * N);  // lanes that have no row give any
    load_matrices(plain, rows + row * 40);
    load_matrices_transposed(transposed, rows + row * 40);
    for (int m = 0; m < N; ++m) {
      words[lane() * N + m] = plain[m];
      words[(32 + lane()) * N + m] = transposed[m];
    }
  }
};

template <int N>
void test_loads() {
  const auto device = open(0);
  std::vector<uint16_t> tiles(N * 64);
  std::iota(tiles.begin(), tiles.end(), uint16_t{100});
  const OnDevice<uint16_t> memory(*device, tiles);
  const OnDevice<uint32_t> words(*device, size_t{64 * N});
  run_alone(*device, {.threads = 32, .shared_bytes = 32 * 80}, LoadTiles<N>{memory.data(), words.data()});
  const auto result = words.values();
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t m = 0; m < N; ++m) {
      const size_t g = lane / 4, i = lane % 4;
      const auto number = [&](size_t row, size_t column) { return uint32_t{tiles[m * 64 + row * 8 + column]}; };
      ASSERT_EQ(result[lane * N + m], number(g, 2 * i) | number(g, 2 * i + 1) << 16);
      ASSERT_EQ(result[(32 + lane) * N + m], number(2 * i, g) | number(2 * i + 1, g) << 16);
    }
  }
}

TEST(EmulatedDevice, LoadsMatrices) {
  test_loads<1>();
  test_loads<2>();
  test_loads<4>();
}

// d [64][N] = a [64][64] b [N][64]^T, added to numbers if `add`: by products of warpgroups and by those of warps. Of int32_t: each
// number of a and b is two of int8.
template <int N, class Number>
struct MultiplyWide {
  static constexpr const char* kName = "multiply_wide";
  static constexpr int kThreads = 128;
  Global<const uint16_t> a, b;
  Global<Number> wide, narrow;  // [64][N], one of them
  bool add;
  static constexpr bool kIntegers = std::is_same_v<Number, int32_t>;
  DEVICE void operator()() const {
    const Shared<uint16_t> rows = shared<uint16_t>(1024);
    for (int t = thread(); t < N * 8; t += kThreads) {
      const int n = t / 8, chunk = t % 8;
      store(rows + n * 64 + (chunk ^ n % 8) * 8, load<4>(b + n * 64 + chunk * 8));
    }
    fence_shared();
    sync_block();
    const int g = lane() / 4, i = lane() % 4;
    Number d[N / 2];
    for (int j = 0; j < N / 2; ++j) d[j] = add || wide != nullptr ? static_cast<Number>(j) : 0;
    uint32_t words[4][4];
    for (int k = 0; k < 4; ++k) {
      for (int w = 0; w < 4; ++w)
        words[k][w] = load<1>(a + (warp() * 16 + g + w % 2 * 8) * 64 + k * 16 + w / 2 * 8 + 2 * i).w[0];
    }
    if (wide != nullptr) {
      fence_products();
      for (int k = 0; k < 4; ++k) {
        if constexpr (kIntegers) {
          multiply_i8_wide<N>(d, words[k], product_rows(rows + k * 16), add || k > 0);
        } else {
          multiply_bf16_wide<N>(d, words[k], product_rows(rows + k * 16), add || k > 0);
        }
      }
      commit_products();
      wait_products<0>();
    } else {
      for (int k = 0; k < 4; ++k) {
        for (int n = 0; n < N; n += 8) {
          uint32_t columns[2];
          for (int w = 0; w < 2; ++w) columns[w] = load<1>(b + (n + g) * 64 + k * 16 + w * 8 + 2 * i).w[0];
          Number part[4];
          for (int j = 0; j < 4; ++j) part[j] = d[n / 2 + j];
          if constexpr (kIntegers) {
            multiply_i8(part, words[k], columns);
          } else {
            multiply_bf16(part, words[k], columns);
          }
          for (int j = 0; j < 4; ++j) d[n / 2 + j] = part[j];
        }
      }
    }
    const Global<Number> to = wide != nullptr ? wide : narrow;
    for (int j = 0; j < N / 2; ++j) to[(warp() * 16 + g + j / 2 % 2 * 8) * N + j / 4 * 8 + 2 * i + j % 2] = d[j];
  }
};

template <int N, class Number = float>
void test_wide_products(bool add) {
  SCOPED_TRACE(std::to_string(N) + " columns, add: " + std::to_string(add));
  const auto device = open(0);
  const auto a = random_bf16(64 * 64, 7), b = random_bf16(N * 64, 8);
  const OnDevice<uint16_t> ma(*device, a), mb(*device, b);
  const OnDevice<Number> wide(*device, size_t{64 * N}), narrow(*device, size_t{64 * N});
  const LaunchShape shape{.threads = 128, .shared_bytes = 1024 + N * 128};
  using Multiply = MultiplyWide<N, Number>;
  run_alone(*device, shape, Multiply{ma.data(), mb.data(), wide.data(), nullptr, add});
  run_alone(*device, shape, Multiply{ma.data(), mb.data(), nullptr, narrow.data(), add});
  EXPECT_EQ(wide.values(), narrow.values());
  // And these are what they should be.
  const auto d = wide.values();
  for (size_t r = 0; r < 64; ++r) {
    for (size_t c = 0; c < N; ++c) {
      const size_t j = c / 8 * 4 + r % 16 / 8 * 2 + c % 2;
      Number expected = add ? static_cast<Number>(j) : 0;
      if constexpr (Multiply::kIntegers) {
        const auto number = [](const std::vector<uint16_t>& m, size_t row, size_t k) {
          return static_cast<int8_t>(m[row * 64 + k / 2] >> (8 * (k % 2)));
        };
        for (size_t k = 0; k < 128; ++k) expected += number(a, r, k) * number(b, c, k);
        ASSERT_EQ(d[r * N + c], expected) << r << ", " << c;
        continue;
      }
      for (size_t k = 0; k < 64; k += 16) {
        expected = sum_of_products(
            expected, 16, [&](size_t i) { return bf16_to_f32(a[r * 64 + k + i]); },
            [&](size_t i) { return bf16_to_f32(b[c * 64 + k + i]); });
      }
      ASSERT_EQ(d[r * N + c], expected) << r << ", " << c;
    }
  }
}

TEST(EmulatedDevice, WideProductsHaveTheBitsOfNarrowOnes) {
  test_wide_products<8>(true);
  test_wide_products<64>(true);
  test_wide_products<64>(false);
  test_wide_products<64, int32_t>(true);
  test_wide_products<128, int32_t>(false);
}

// Two halves of a block, which exchange values by parts.
struct ExchangeParts {
  static constexpr const char* kName = "exchange_parts";
  static constexpr int kThreads = 128;
  Global<int> out;
  DEVICE void operator()() const {
    const Shared<int> values = shared<int>(0);
    values[thread()] = thread();
    const int half = thread() / 64;
    sync_part(1 + half, 64);
    out[thread()] = values[half * 64 + 63 - thread() % 64];
  }
};

TEST(EmulatedDevice, SynchronizesParts) {
  const auto device = open(0);
  const OnDevice<int> out(*device, size_t{128});
  run_alone(*device, {.threads = 128, .shared_bytes = 512}, ExchangeParts{out.data()});
  const auto result = out.values();
  for (int t = 0; t < 128; ++t) EXPECT_EQ(result[static_cast<size_t>(t)], t / 64 * 64 + 63 - t % 64);
}

}  // namespace
}  // namespace quire::cuda
