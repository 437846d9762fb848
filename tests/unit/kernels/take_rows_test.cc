// Rows of packed matrices keep their weights when they move to another matrix.

#include "kernels/take_rows.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "unit/kernels/random_panels.h"

namespace quire {
namespace {

class TakeRows : public ::testing::TestWithParam<testing::Weights> {};

TEST_P(TakeRows, GivesTheBytesThatPackingTheseRowsGives) {
  constexpr int kRows = 75, kCols = 512;
  const testing::Weights& w = GetParam();
  std::mt19937 random(3);
  std::vector<int32_t> rows;
  for (int i = 0; i < 37; ++i) rows.push_back(static_cast<int32_t>(random() % kRows));
  rows[0] = kRows - 1;  // in a panel that is not full
  const auto all = testing::random_matrix(w, kRows, kCols, random);
  testing::OwnedMatrix some = testing::own(describe_packed(w.format, w.factor, static_cast<int>(rows.size()), kCols));
  take_rows(all.matrix, rows, some.memory.data(), 0, 1);  // as threads do
  take_rows(all.matrix, rows, some.memory.data(), 1, some.matrix.panels());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int col = 0; col < kCols; ++col) {
      ASSERT_EQ(packed_weight(some.matrix, static_cast<int>(i), col), packed_weight(all.matrix, rows[i], col))
          << "row " << i << " column " << col;
    }
  }
  // Taken again in their old order, they are the old bytes, padding included.
  std::vector<int32_t> same(kRows);
  for (int i = 0; i < kRows; ++i) same[static_cast<size_t>(i)] = i;
  const testing::OwnedMatrix copy = testing::own(all.matrix);
  take_rows(all.matrix, same, copy.memory.data(), 0, all.matrix.panels());
  EXPECT_EQ(std::memcmp(copy.memory.data(), all.matrix.data, all.matrix.bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, TakeRows, ::testing::ValuesIn(testing::all_weights()),
                         [](const auto& w) { return w.param.name; });

}  // namespace
}  // namespace quire
