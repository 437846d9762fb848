// Rows of packed matrices on the emulated device have the bytes that they have on the host.
#include "cuda/linear/take_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/take_rows.h"
#include "unit/cuda/placed.h"
#include "unit/kernels/random_panels.h"

namespace quire::cuda {
namespace {

void expect_host_bytes(TensorType type, int all_rows, int cols, const std::vector<int32_t>& rows) {
  const std::unique_ptr<Device> device = open(0);
  std::mt19937 random(1);
  const auto all = testing::random_matrix(type, all_rows, cols, random);
  const testing::PlacedMatrix placed(*device, all.matrix);
  const PackedMatrix some = describe_packed(type, static_cast<int>(rows.size()), cols);
  std::vector<std::byte> expected(some.bytes());
  quire::take_rows(all.matrix, rows, expected.data(), 0, some.panels());
  const testing::Placed<std::byte> taken(*device, some.bytes());
  take_rows(*device, placed.matrix, rows, taken.data());
  EXPECT_EQ(std::memcmp(taken.values().data(), expected.data(), expected.size()), 0);
}

TEST(CudaTakeRows, GivesTheHostsBytes) {
  std::vector<int32_t> rows;
  for (int row = 1; row < 200; row += 1 + row % 5) rows.push_back(row);
  expect_host_bytes(TensorType::Q5_K, 200, 256, rows);
  expect_host_bytes(TensorType::BF16, 200, 40, {199});
}

// Panels of 2 MiB: sixteen are on the host together, and rows of one panel may come from more.
TEST(CudaTakeRows, GoesThroughTheHostInParts) {
  std::vector<int32_t> rows;
  for (int row = 3; row < 600; row += 29) rows.push_back(row);
  for (int row = 600; row < 640; ++row) rows.push_back(row);
  expect_host_bytes(TensorType::F32, 640, 1 << 15, rows);
}

}  // namespace
}  // namespace quire::cuda
