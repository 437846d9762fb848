#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace quire {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    ::close(file);
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "quire-mapped-XXXXXX").string();
};

// KiB of the file's mapping that are in the process's memory.
long resident_kib(const std::string& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  while (std::getline(smaps, line)) {
    const size_t word = line.find(' ');
    if (word != std::string::npos && line.find(':') > word) {
      ours = line.ends_with(path);
    } else if (ours && line.starts_with("Rss:")) {
      return std::stol(line.substr(4));
    }
  }
  ADD_FAILURE() << path << " is not mapped";
  return -1;
}

TEST(MappedFile, ReleasesWhatWasReadAndReadsItAgain) {
  std::string text(size_t{1} << 20, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31 / 7);
  const TemporaryFile file(text);
  const MappedFile mapped(file.path());
  const auto is_same = [&] { return std::ranges::equal(mapped.bytes(), std::as_bytes(std::span(text))); };
  EXPECT_TRUE(is_same());
  EXPECT_GE(resident_kib(file.path()), 1024);
  mapped.release();
  EXPECT_EQ(resident_kib(file.path()), 0);
  EXPECT_TRUE(is_same());
}

TEST(MappedFile, ReleasesAnEmptyFile) {
  const TemporaryFile file("");
  const MappedFile mapped(file.path());
  mapped.release();
  EXPECT_TRUE(mapped.bytes().empty());
}

}  // namespace
}  // namespace quire
