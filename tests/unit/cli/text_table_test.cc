#include "cli/terminal/text_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(TextTable, AlignsTextLeftAndNumbersRight) {
  TextTable table({"test", "tok/s", "note"}, 1);
  table.add({"prefill 512", "1234.5", "ok"});
  table.add({"decode", "7.1", ""});
  EXPECT_EQ(table.text(),
            "test          tok/s  note\n"
            "prefill 512  1234.5    ok\n"
            "decode          7.1\n");
}

}  // namespace
}  // namespace quire
