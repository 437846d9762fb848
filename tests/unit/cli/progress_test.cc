#include "cli/terminal/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <thread>

namespace quire {
namespace {

using namespace std::chrono_literals;

// A terminal whose other end the test reads.
class Progressing : public ::testing::Test {
 protected:
  void SetUp() override {
    reader_ = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    ASSERT_GE(reader_, 0);
    ASSERT_EQ(grantpt(reader_), 0);
    ASSERT_EQ(unlockpt(reader_), 0);
    terminal_ = open(ptsname(reader_), O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal_, 0);
  }
  void TearDown() override {
    close(terminal_);
    close(reader_);
  }
  // All that comes until nothing has come for a moment: the kernel hands on what was written later.
  std::string written() const {
    std::string all;
    char bytes[4096];
    for (pollfd ready{.fd = reader_, .events = POLLIN, .revents = 0}; poll(&ready, 1, 20) > 0;) {
      const ssize_t n = read(reader_, bytes, sizeof bytes);
      if (n <= 0) break;
      all.append(bytes, static_cast<size_t>(n));
    }
    return all;
  }

  int reader_ = -1, terminal_ = -1;
};

TEST_F(Progressing, RewritesOneLineAndErasesIt) {
  {
    Progress progress(terminal_);
    progress.stage("measuring");
    EXPECT_EQ(written(), "\r\x1b[Kmeasuring ...");
    progress.step(1, 4);
    EXPECT_EQ(written(), "") << "repainted too soon";
    std::this_thread::sleep_for(110ms);
    progress.step(2, 4, "so far so good");
    EXPECT_EQ(written(), "\r\x1b[Kmeasuring: 2 of 4; so far so good");
    std::this_thread::sleep_for(1s);
    progress.step(3, 4);
    EXPECT_EQ(written(), "\r\x1b[Kmeasuring: 3 of 4, 0 s left");
  }
  EXPECT_EQ(written(), "\r\x1b[K");
}

TEST_F(Progressing, CountsBytesInMiB) {
  Progress progress(terminal_);
  progress.stage("loading");
  EXPECT_EQ(written(), "\r\x1b[Kloading ...");
  std::this_thread::sleep_for(110ms);
  progress.step_bytes(size_t{30} << 20, size_t{92} << 20);
  EXPECT_EQ(written(), "\r\x1b[Kloading: 30 of 92 MiB");
}

TEST_F(Progressing, GoesOnWithAStageAfterOneWithinIt) {
  Progress progress(terminal_);
  progress.stage("quantizing");
  {
    const Progress::Inner inner(progress, "calibrating");
    EXPECT_EQ(written(), "\r\x1b[Kquantizing ...\r\x1b[Kcalibrating ...");
    std::this_thread::sleep_for(1100ms);
  }
  // There is a time left only because the inner stage's is part of the outer's.
  progress.step(1, 2);
  const std::string line = written();
  EXPECT_TRUE(line.starts_with("\r\x1b[Kquantizing: 1 of 2, ")) << line;
}

TEST_F(Progressing, StaysOnOneLineOfTheTerminal) {
  const winsize narrow{.ws_row = 24, .ws_col = 10, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &narrow), 0);
  Progress progress(terminal_);
  progress.stage("12345678\u00e9");  // a character of two bytes at the edge is left out whole
  EXPECT_EQ(written(), "\r\x1b[K12345678");
}

TEST(Progress, WritesNothingToAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  {
    Progress progress(ends[1]);
    progress.stage("measuring");
    std::this_thread::sleep_for(110ms);
    progress.step(1, 2);
  }
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), -1);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace quire
