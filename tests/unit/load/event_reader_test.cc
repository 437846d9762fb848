#include "load/event_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace quire {
namespace {

std::vector<std::string> events(std::string_view bytes, size_t step) {
  std::vector<std::string> out;
  EventReader reader([&](std::string_view data) { out.emplace_back(data); });
  for (size_t at = 0; at < bytes.size(); at += step) reader.feed(bytes.substr(at, step));
  return out;
}

TEST(EventReader, IgnoresHowTheBytesAreSplit) {
  const std::string_view bytes =
      ": a comment\n\ndata: one\n\nevent: x\r\ndata:two\r\nid: 3\r\n\r\ndata: a\rdata: b\r\rdata:\n\n\n\ndata: "
      "unended\n";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    EXPECT_EQ(events(bytes, step), (std::vector<std::string>{"one", "two", "a\nb", ""})) << step;
  }
}

TEST(EventReader, RefusesAnOversizedEvent) {
  EventReader reader([](std::string_view) {});
  const std::string megabyte(1 << 20, 'x');
  EXPECT_THROW(
      {
        for (int i = 0; i < 20; ++i) reader.feed(megabyte);
      },
      Error);
}

}  // namespace
}  // namespace quire
