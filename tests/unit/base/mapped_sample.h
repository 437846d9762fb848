// A file to map, removed after the test, and how much of it is in memory.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    ::close(file);
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "quire-mapped-XXXXXX").string();
};

// KiB of the file's mapping that are in the process's memory.
inline long resident_kib(const std::string& path) {
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

}  // namespace quire
