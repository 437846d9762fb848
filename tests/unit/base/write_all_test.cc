#include "base/files/write_all.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <span>
#include <string>
#include <thread>

namespace quire {
namespace {

TEST(WriteAll, WritesMoreThanOneCallTakes) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string text(1 << 20, 'x');  // a pipe takes 64 KiB at a time
  std::string read;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) read.append(buffer, static_cast<size_t>(n));
  });
  EXPECT_EQ(write_all(ends[1], text), 0);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(read, text);
}

TEST(WriteAll, WritesAtAnOffset) {
  std::FILE* const file = std::tmpfile();
  const std::string text = "world";
  EXPECT_EQ(write_all(::fileno(file), "hello, there"), 0);
  EXPECT_EQ(write_all_at(::fileno(file), std::as_bytes(std::span(text)), 7), 0);
  char found[12];
  EXPECT_EQ(::pread(::fileno(file), found, sizeof found, 0), 12);
  EXPECT_EQ(std::string(found, sizeof found), "hello, world");
  std::fclose(file);
}

TEST(WriteAll, SaysWhyItFailed) {
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_EQ(write_all(full, "x"), ENOSPC);
  ::close(full);
  EXPECT_EQ(write_all(-1, "x"), EBADF);
  EXPECT_EQ(write_all_at(-1, {}, 0), 0) << "nothing to write";
}

}  // namespace
}  // namespace quire
