#include "base/text/duration.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

using namespace std::chrono_literals;

TEST(Duration, IsReadAsGoWritesIt) {
  EXPECT_EQ(parse_duration("90s"), 90s);
  EXPECT_EQ(parse_duration("1h30m"), 90min);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(parse_duration("0s"), 0ms);
  EXPECT_EQ(parse_duration("-1m"), -1min);
  EXPECT_EQ(parse_duration("2000us"), 2ms);
  EXPECT_EQ(parse_duration("1000000h"), 1'000'000h);
}

TEST(Duration, IsRefusedIfItIsNone) {
  for (const char* text : {"", "-", "5", "m", "5 m", "5x", "1e3s", "--5s", "5m-3s", "nanh", "infs", "1000001h", "5m3"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

}  // namespace
}  // namespace quire
