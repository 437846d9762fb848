// What is picked of rows on a device, next to ops/pick.h.
#include "cuda/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "device_memory.h"

namespace quire::cuda {
namespace {

// Compares the results, word by word.
void expect_picked(Device& device, TwinRows& x, int cols, const std::vector<Pick>& picks) {
  Stream stream(device, false, std::max<size_t>(16, 2 * pick_scratch_bytes(cols)));  // room for two rows at a time
  size_t words = 0, room = 0;
  for (const Pick& one : picks) words += one.words(), room += one.room();
  std::byte* const results = device.allocate(room * sizeof(uint32_t));
  Rows rows = x.on_device();
  rows.cols = cols;
  pick(stream, rows, picks, reinterpret_cast<uint32_t*>(results));
  stream.finish();
  std::vector<uint32_t> got(words);
  device.download(reinterpret_cast<std::byte*>(got.data()), results, words * sizeof(uint32_t));
  device.free(results);

  std::span<const uint32_t> left = got;
  for (size_t row = 0; row < picks.size(); ++row) {
    std::vector<uint32_t> want(picks[row].words());
    quire::pick({x.host().row(static_cast<int>(row)), static_cast<size_t>(cols)}, picks[row], want);
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(left[i], want[i]) << cols << " columns, row " << row << ", word " << i;
    left = left.subspan(want.size());
  }
}

TEST(PicksOnDevice, AreTheBestOfAnyNumberOfColumns) {
  const std::unique_ptr<Device> device = open(0);
  struct Case {
    int cols;
    std::vector<int> best;  // of each row
  };
  for (const Case& c :
       {Case{1, {1, 2}}, {7, {7, 0, 9}}, {300, {1, 128, 3}}, {8192, {2}}, {8193, {1, 0, 5}}, {20000, {10, 128}}}) {
    TwinRows x(*device, static_cast<int>(c.best.size()), c.cols, 1);
    std::vector<Pick> picks;
    for (const int best : c.best) picks.push_back({.best = best});
    expect_picked(*device, x, c.cols, picks);
  }
}

TEST(PicksOnDevice, KeepToTheirMaskAndHaveTheirColumns) {
  const std::unique_ptr<Device> device = open(0);
  std::mt19937 random(4);
  for (const int cols : {33, 500, 9001}) {
    TwinRows x(*device, 5, cols, 2);
    std::vector<std::vector<uint32_t>> masks(5);
    std::vector<std::vector<int32_t>> columns(5);
    std::vector<Pick> picks;
    for (size_t row = 0; row < 5; ++row) {
      for (int word = 0; word < (cols + 31) / 32; ++word)
        masks[row].push_back(static_cast<uint32_t>(random() & random()));
      for (int col = static_cast<int>(random() % 5); col < cols; col += 1 + static_cast<int>(random() % 100))
        columns[row].push_back(col);
      if (row == 3) std::ranges::fill(masks[row], 0u);
      if (row == 4) std::ranges::fill(masks[row], 0u), masks[row].back() = 1;  // only the first column of the last word
      picks.push_back({.best = 20, .mask = masks[row], .columns = columns[row]});
    }
    picks[0].mask = {};
    picks[1].columns = {};
    picks[2].best = 0;
    expect_picked(*device, x, cols, picks);
  }
}

TEST(PicksOnDevice, OrderEqualNumbersInfinitiesAndNan) {
  const std::unique_ptr<Device> device = open(0);
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNoNumber = std::numeric_limits<float>::quiet_NaN();
  constexpr int kCols = 9000;
  TwinRows x(*device, 6, kCols, 2);
  const auto row = [&](int r) { return std::span(x.host().row(r), size_t{kCols}); };
  for (float& value : row(0)) value = std::round(value);  // many ties
  std::ranges::fill(row(1), kNoNumber);
  row(1)[8500] = -kInfinite;
  row(1)[3] = -5;
  for (size_t i = 0; i < row(2).size(); ++i) row(2)[i] = i % 2 == 0 ? -0.0f : 0.0f;
  row(3)[8999] = kInfinite;
  row(3)[7] = kNoNumber;
  row(3)[1] = -kNoNumber;
  std::ranges::fill(row(4), -kInfinite);
  std::ranges::fill(row(5), -std::numeric_limits<float>::denorm_min());
  x.upload();
  expect_picked(*device, x, kCols, std::vector<Pick>(6, {.best = 12}));
}

// Draws from few and many parts, with masks, cuts and at the ends of their range, and next to rows without.
TEST(PicksOnDevice, DrawFromTheWeightsThatAreLeft) {
  const std::unique_ptr<Device> device = open(0);
  std::mt19937 random(6);
  for (const int cols : {1, 33, 500, 8192, 30001}) {
    std::vector<uint32_t> mask;
    for (int word = 0; word < (cols + 31) / 32; ++word) mask.push_back(static_cast<uint32_t>(random() | 1));
    const std::vector<int32_t> columns{0};
    constexpr double kLast = 1 - 0x1p-53;
    std::vector<Pick> picks{
        {.best = 1, .draw = {{.temperature = 1, .uniform = 0.3}}},
        {.best = 2, .mask = mask, .draw = {{.temperature = 0.2f, .uniform = 0.9}}},
        {.best = 3},
        {.best = 1, .draw = {{.temperature = 0.7f, .uniform = kLast}}},
        {.best = 1, .mask = mask, .draw = {{.temperature = 50, .uniform = 0}}},
        {.best = 1, .columns = columns},
        {.best = 1, .draw = {{.temperature = 1e-30f, .uniform = 0.5}}},
        {.best = 1, .mask = mask, .draw = {{.temperature = 100, .uniform = kLast}}},
        {.best = 40, .draw = {{.temperature = 0.1f, .uniform = 0.8, .top_p = 0.9f}}},
        {.best = 128, .mask = mask, .draw = {{.temperature = 0.1f, .uniform = 0.6, .top_p = 0.99f, .min_p = 0.1f}}},
        {.best = 40, .draw = {{.temperature = 2, .uniform = 0.8, .top_p = 0.9f}}},  // often not enough
        {.best = 40, .draw = {{.temperature = 0.1f, .uniform = kLast, .min_p = 0.05f}}},
        {.best = 40, .draw = {{.temperature = 0.1f, .uniform = 0.2, .top_p = 0}}},
        {.best = 20, .draw = {{.temperature = 1, .uniform = kLast, .best_only = true}}},
        {.best = 64, .mask = mask, .draw = {{.temperature = 1, .uniform = 0.5, .best_only = true, .top_p = 0.5f}}},
        {.best = 64, .draw = {{.temperature = 1, .uniform = 0, .best_only = true, .min_p = 0.3f}}}};
    TwinRows x(*device, static_cast<int>(picks.size()), cols, 2);
    const auto row = [&](int r) { return std::span(x.host().row(r), static_cast<size_t>(cols)); };
    std::ranges::fill(row(3), 1.0f);
    for (const int r : {8, 13, 14}) std::ranges::for_each(row(r), [](float& value) { value = std::round(2 * value); });
    x.upload();
    expect_picked(*device, x, cols, picks);
    std::ranges::reverse(picks);
    expect_picked(*device, x, cols, picks);
  }
}

TEST(PicksOnDevice, DrawNothingWithoutAFiniteBestNumber) {
  const std::unique_ptr<Device> device = open(0);
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr int kCols = 9000;
  TwinRows x(*device, 5, kCols, 2);
  x.host().row(0)[8999] = kInfinite;
  x.host().row(1)[3] = std::numeric_limits<float>::quiet_NaN();
  std::ranges::fill(std::span(x.host().row(2), size_t{kCols}), -kInfinite);
  std::ranges::fill(std::span(x.host().row(4), size_t{kCols / 2}), -kInfinite);
  x.upload();
  const std::vector<uint32_t> nothing((kCols + 31) / 32, 0);
  for (const PickDraw& draw :
       {PickDraw{.temperature = 1, .uniform = 0.5}, PickDraw{.temperature = 0.1f, .uniform = 0.5, .top_p = 0.5f}}) {
    std::vector<Pick> picks(5, {.best = 30, .draw = draw});
    picks[3].mask = nothing;
    expect_picked(*device, x, kCols, picks);
  }
}

// Whose rows begin anywhere, and so many parts that the best of parts are cut into parts again.
TEST(PicksOnDevice, AreTheBestOfPartsOfParts) {
  const std::unique_ptr<Device> device = open(0);
  constexpr int kCols = 8192 * 33 + 3;
  TwinRows x(*device, 1, kCols, 3);
  expect_picked(*device, x, kCols, {{.best = 128}});
}

}  // namespace
}  // namespace quire::cuda
