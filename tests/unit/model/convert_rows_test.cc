// Rows on their way from one file's type to another's.

#include "model/convert/rows.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace quire {
namespace {

TEST(ReadRow, TakesColumnsOfTransposedMatrices) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  TensorView view{.name = "t", .type = TensorType::F32, .shape = {3, 2}, .bytes = std::as_bytes(std::span(values))};
  std::vector<float> out(3);
  read_row({&view, 0, 1, 2, 3, true}, 1, 0, out);
  EXPECT_EQ(out, (std::vector<float>{2, 4, 6}));
  out.resize(2);
  read_row({&view, 0, 1, 3, 2, false}, 2, 0, out);
  EXPECT_EQ(out, (std::vector<float>{5, 6}));
  view.shape = {3, 1, 2};
  read_row({&view, 1, 3, 1, 2, false}, 0, 0, out);
  EXPECT_EQ(out, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace quire
