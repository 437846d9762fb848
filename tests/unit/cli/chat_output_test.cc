#include "cli/chat/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"

namespace quire {
namespace {

TEST(EscapeControls, KeepsText) {
  const std::string text = "Grüße, 世界 🌍\n\ttab \\ backslash";
  EXPECT_EQ(escape_controls(text), text);
}

TEST(EscapeControls, EscapesControlCharacters) {
  EXPECT_EQ(escape_controls("\x1b[2J\x07\r\x7f"), "\\x1b[2J\\x07\\x0d\\x7f");
  EXPECT_EQ(escape_controls("\xc2\x9b"
                            "2J"),
            "\\x9b2J");  // the one-character CSI
  EXPECT_EQ(escape_controls(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(EscapeControls, EscapesBytesThatAreNotUtf8) { EXPECT_EQ(escape_controls("a\xff\xe4\xb8"), "a\\xff\\xe4\\xb8"); }

TEST(EscapeControls, EscapesNewlinesAndTabsInALine) { EXPECT_EQ(escape_controls("a\nb\t\\n", true), "a\\nb\\t\\\\n"); }

TEST(Colours, NeedATerminal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(has_colours(ends[1]));
  EXPECT_EQ(styled(ends[1], Style::kError, "x"), "x");
  close(ends[0]);
  close(ends[1]);
}

TEST(WriteOut, ReturnsFalseWhenTheReaderIsGone) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_TRUE(write_out(ends[1], "x"));
  close(ends[0]);
  EXPECT_FALSE(write_out(ends[1], "x"));
  close(ends[1]);
  EXPECT_FALSE(write_out(ends[1], "x"));
  signal(SIGPIPE, SIG_DFL);
}

TEST(WriteOut, WaitsForASlowReaderOfANonBlockingPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  std::jthread reader([end = ends[0]] {
    for (char bytes[4096]; read(end, bytes, sizeof bytes) != 0;) usleep(100);
    close(end);
  });
  EXPECT_TRUE(write_out(ends[1], std::string(size_t{1} << 20, 'x')));  // more than a pipe holds
  close(ends[1]);
}

TEST(WriteOut, ReportsAFullDisk) {
  const int full = open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "there is no /dev/full here";
  EXPECT_THROW(write_out(full, "x"), Error);
  close(full);
}

}  // namespace
}  // namespace quire
