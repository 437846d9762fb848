#include "base/text/quote.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Quote, EscapesControlsAndCutsLongNames) {
  EXPECT_EQ(quote("blk.0"), "\"blk.0\"");
  EXPECT_EQ(quote("\x1b[2J\"\\\xff\xe2\x96\x81"), "\"\\x1b[2J\\\"\\\\\\xff\xe2\x96\x81\"");
  EXPECT_EQ(quote(std::string(200, 'a')), "\"" + std::string(80, 'a') + "...\" (200 bytes)");
}

}  // namespace
}  // namespace quire
