#include "cli/chat/standard_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

// A pipe whose writer closes it unless it is kept open.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  void write(std::string_view text) const { EXPECT_EQ(::write(ends[1], text.data(), text.size()), std::ssize(text)); }
  int ends[2];
};

std::string read_of(std::string_view bytes) {
  Pipe pipe;
  pipe.write(bytes);
  pipe.close_writer();
  return read_standard_input(pipe.ends[0]);
}

std::string error_of(std::string_view bytes) {
  try {
    return "accepted: " + read_of(bytes);
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(StandardInput, IsTextOfAnyLanguageWithoutAByteOrderMark) {
  EXPECT_EQ(read_of("one\r\ntwo\n"), "one\r\ntwo\n");
  EXPECT_EQ(read_of("\xEF\xBB\xBFstra\xC3\x9F"
                    "e \xE4\xB8\x96\xF0\x9F\x8C\x8D"),
            "stra\xC3\x9F"
            "e \xE4\xB8\x96\xF0\x9F\x8C\x8D");
  EXPECT_EQ(read_of(""), "");
}

TEST(StandardInput, ThatIsNoUtf8IsRefusedWithItsPlace) {
  EXPECT_NE(error_of("caf\xE9 au lait").find("byte 3 is 0xE9"), std::string::npos);
  EXPECT_NE(error_of("\xC3").find("byte 0 is 0xC3"), std::string::npos) << "half a character at the end";
  EXPECT_NE(error_of(std::string_view("\x7F"
                                      "ELF\0\1",
                                      6))
                .find("byte 4 is 0"),
            std::string::npos);
  EXPECT_NE(error_of(std::string_view("\xFF\xFEh\0i\0", 6)).find("UTF-16"), std::string::npos);
  EXPECT_NE(error_of(std::string_view("\xFE\xFF\0h", 4)).find("UTF-16"), std::string::npos);
}

TEST(StandardInput, IsBounded) {
  const int zeros = ::open("/dev/zero", O_RDONLY);
  EXPECT_THROW(read_standard_input(zeros), Error);
  ::close(zeros);
  const int folder = ::open("/", O_RDONLY);
  EXPECT_THROW(read_standard_input(folder), Error);
  ::close(folder);
}

TEST(PipedText, IsEmptyWithoutInput) {
  EXPECT_EQ(read_piped_text(-1, milliseconds(0)), "") << "closed";
  const int nothing = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(read_piped_text(nothing, milliseconds(0)), "");
  ::close(nothing);
  Pipe pipe;
  pipe.close_writer();
  EXPECT_EQ(read_piped_text(pipe.ends[0], milliseconds(0)), "");
}

// The standard input of a CI runner, or of a program that inherited its parent's.
TEST(PipedText, OfAPipeThatStaysOpenAndSilentIsLeftOutWithAWarning) {
  const Pipe pipe;
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_piped_text(pipe.ends[0], milliseconds(30)), "");
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_NE(warning.find("nothing has come in 0.03 s"), std::string::npos) << warning;
  EXPECT_NE(warning.find("< /dev/null"), std::string::npos) << warning;
}

TEST(PipedText, IsReadToItsEndOnceAnythingHasCome) {
  Pipe pipe;
  pipe.write("one ");
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(150));
    pipe.write("two");
    pipe.close_writer();
  });
  testing::internal::CaptureStderr();
  EXPECT_EQ(read_piped_text(pipe.ends[0], milliseconds(20)), "one two");
  writer.join();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("still reading standard input; 4 bytes"), std::string::npos);
}

TEST(PipedText, ComesFromSocketsAndFilesAndPipesThatDoNotBlock) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ASSERT_EQ(::fcntl(sockets[0], F_SETFL, O_NONBLOCK), 0);
  std::thread writer([&] {
    EXPECT_EQ(::write(sockets[1], "one", 3), 3);
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(::write(sockets[1], "two", 3), 3);
    ::close(sockets[1]);
  });
  EXPECT_EQ(read_piped_text(sockets[0], milliseconds(10'000)), "onetwo");
  writer.join();
  ::close(sockets[0]);
}

TEST(JoinedPrompt, HasAnEmptyLineBetweenPromptAndText) {
  EXPECT_EQ(joined_prompt("Summarise:", "text"), "Summarise:\n\ntext");
  EXPECT_EQ(joined_prompt("Summarise:\n", "text"), "Summarise:\n\ntext");
  EXPECT_EQ(joined_prompt("Summarise:\n\n", "text"), "Summarise:\n\ntext");
  EXPECT_EQ(joined_prompt("Hi", ""), "Hi");
  EXPECT_EQ(joined_prompt("", "text"), "text");
}

}  // namespace
}  // namespace quire
