// A file of a test, removed after it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace quire::testing {

class TemporaryTrace {
 public:
  explicit TemporaryTrace(std::string_view text = {}) {
    std::string name = (std::filesystem::temp_directory_path() / "quire-trace-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    if (!text.empty()) write(text);
  }
  ~TemporaryTrace() { std::filesystem::remove_all(folder_); }
  TemporaryTrace(const TemporaryTrace&) = delete;
  TemporaryTrace& operator=(const TemporaryTrace&) = delete;

  std::string path() const { return (folder_ / "trace.json").string(); }
  std::string folder() const { return folder_.string(); }
  void write(std::string_view text) const { std::ofstream(path(), std::ios::binary) << text; }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path(), std::ios::binary).rdbuf();
    return all.str();
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace quire::testing
