// The best tokens of rows on a device, next to ops/top.h.
#include "cuda/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "device_memory.h"
#include "ops/top.h"

namespace quire::cuda {
namespace {

// Compares the best of each row.
void expect_top(Device& device, TwinRows& x, int cols, int count, int rows) {
  Stream stream(device, false);
  const size_t places = static_cast<size_t>(count * rows), scratch_bytes = top_bytes(cols, count, rows);
  std::byte* const scratch = device.allocate(scratch_bytes + 16);
  std::byte* const columns = device.allocate(places * sizeof(int32_t));
  std::byte* const values = device.allocate(places * sizeof(float));
  top(stream, x.on_device(), count, rows, scratch, reinterpret_cast<int32_t*>(columns),
      reinterpret_cast<float*>(values));
  stream.finish();
  std::vector<int32_t> got_columns(places);
  std::vector<float> got_values(places);
  device.download(reinterpret_cast<std::byte*>(got_columns.data()), columns, places * sizeof(int32_t));
  device.download(reinterpret_cast<std::byte*>(got_values.data()), values, places * sizeof(float));
  for (std::byte* memory : {scratch, columns, values}) device.free(memory);

  std::vector<Ranked> best(static_cast<size_t>(count));
  for (int row = 0; row < rows; ++row) {
    quire::top({x.host().row(row), static_cast<size_t>(cols)}, best);
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(row * count + i);
      const Ranked& want = best[static_cast<size_t>(i)];
      ASSERT_EQ(got_columns[at], want.column) << cols << " columns, row " << row << ", place " << i;
      ASSERT_EQ(std::memcmp(&got_values[at], &want.value, sizeof(float)), 0) << cols << " columns, row " << row;
    }
  }
}

TEST(TopOnDevice, FindsTheBestOfAnyNumberOfColumns) {
  const std::unique_ptr<Device> device = open(0);
  struct Case {
    int cols, count, rows;
  };
  for (const Case& c :
       {Case{1, 1, 2}, {7, 7, 3}, {300, 1, 3}, {300, 64, 2}, {8192, 2, 1}, {8193, 1, 2}, {20000, 10, 2}}) {
    TwinRows x(*device, c.rows, c.cols, 1);
    expect_top(*device, x, c.cols, c.count, c.rows);
  }
}

TEST(TopOnDevice, OrdersEqualNumbersInfinitiesAndNan) {
  const std::unique_ptr<Device> device = open(0);
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNoNumber = std::numeric_limits<float>::quiet_NaN();
  constexpr int kCols = 9000, kCount = 12;
  TwinRows x(*device, 6, kCols, 2);
  const auto row = [&](int r) { return std::span(x.host().row(r), size_t{kCols}); };
  for (float& value : row(0)) value = std::round(value);  // many ties
  std::ranges::fill(row(1), kNoNumber);
  row(1)[8500] = -kInfinite;
  row(1)[3] = -5;
  for (size_t i = 0; i < row(2).size(); ++i) row(2)[i] = i % 2 == 0 ? -0.0f : 0.0f;
  row(3)[8999] = kInfinite;
  row(3)[0] = kNoNumber;
  row(3)[1] = -kNoNumber;
  std::ranges::fill(row(4), -kInfinite);
  std::ranges::fill(row(5), -std::numeric_limits<float>::denorm_min());
  x.upload();
  expect_top(*device, x, kCols, kCount, 6);
}

// So many parts that the best of parts are cut into parts again.
TEST(TopOnDevice, FindsTheBestOfPartsOfParts) {
  const std::unique_ptr<Device> device = open(0);
  constexpr int kCols = 8192 * 6 + 3, kCount = 600;
  TwinRows x(*device, 1, kCols, 3);
  expect_top(*device, x, kCols, kCount, 1);
}

}  // namespace
}  // namespace quire::cuda
