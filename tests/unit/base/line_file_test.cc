#include "base/files/line_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "error_of.h"

namespace quire {
namespace {

class LineFiles : public ::testing::Test {
 protected:
  ~LineFiles() override { std::filesystem::remove(path_); }
  std::vector<std::string> lines() {
    LineFile file(path_, "FILE");
    std::vector<std::string> all;
    for (std::string line; file.next(line, longest_);) all.push_back(line);
    EXPECT_EQ(file.number(), static_cast<int>(all.size()));
    return all;
  }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("quire-lines-" + std::to_string(::getpid()))).string();
  size_t longest_ = 200'000;
};

TEST_F(LineFiles, AreReadWithAndWithoutALastLineEnd) {
  using Lines = std::vector<std::string>;
  const std::string longer(150'000, 'x');
  for (const auto& [text, expected] : std::vector<std::pair<std::string, Lines>>{{"", {}},
                                                                                 {"\n", {""}},
                                                                                 {"a", {"a"}},
                                                                                 {"a\n", {"a"}},
                                                                                 {"a\r\n\nb", {"a\r", "", "b"}},
                                                                                 {longer + "\nb\n", {longer, "b"}}}) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    EXPECT_EQ(lines(), expected);
  }
}

TEST_F(LineFiles, AreRefusedIfTheyCannotBeRead) {
  EXPECT_EQ(error_of([&] { lines(); }), "FILE: No such file or directory");
  for (const char* other : {"/dev/zero", "/dev/null", "/tmp"})
    EXPECT_EQ(error_of([&] { LineFile(other, "FILE"); }), "FILE is neither a file nor a pipe") << other;
  std::ofstream(path_) << "a\nb";
  std::filesystem::resize_file(path_, size_t{1} << 40);  // zeros that take no space
  EXPECT_EQ(error_of([&] { lines(); }), "FILE:2: the line has more than 200000 bytes");
}

TEST_F(LineFiles, SayWhetherThereIsSomethingToRead) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  LineFile file(path_, "FILE");
  const int writer = ::open(path_.c_str(), O_WRONLY);
  EXPECT_FALSE(file.is_ready());
  ASSERT_EQ(::write(writer, "a\nb\n", 4), 4);
  std::string line;
  for (const char* text : {"a", "b"}) {
    EXPECT_TRUE(file.is_ready());
    EXPECT_TRUE(file.next(line, 10));
    EXPECT_EQ(line, text);
  }
  EXPECT_FALSE(file.is_ready());
  ::close(writer);
  EXPECT_TRUE(file.is_ready()) << "its end";
  EXPECT_FALSE(file.next(line, 10));
}

TEST_F(LineFiles, PassOverLongLines) {
  std::ofstream(path_, std::ios::binary) << "abc\n" << std::string(300'000, 'x') << "\nabcd\n\nabc";
  LineFile file(path_, "FILE");
  std::string line;
  const auto next = [&] { return file.next_or_skip(line, 3); };
  for (const auto& [kind, text] : {std::pair(LineFile::Line::kWhole, "abc"),
                                   {LineFile::Line::kTooLong, "xxx"},
                                   {LineFile::Line::kTooLong, "abc"},
                                   {LineFile::Line::kWhole, ""},
                                   {LineFile::Line::kWhole, "abc"},
                                   {LineFile::Line::kEnd, ""}}) {
    EXPECT_EQ(next(), kind);
    EXPECT_EQ(line, text);
  }
  EXPECT_EQ(file.number(), 5);
}

TEST_F(LineFiles, MayBePipes) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(lines().empty());  // nobody writes to it
  std::thread writer;
  {
    LineFile file(path_, "FILE");
    writer = std::thread([&] {
      std::ofstream out(path_);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      out << "late\n";
    });
    std::string line;
    // Until the writer has opened the pipe, it is empty.
    while (!file.next(line, longest_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(line, "late");
  }
  writer.join();
}

}  // namespace
}  // namespace quire
