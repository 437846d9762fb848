// Pages whose bytes follow from their number, and folders that go with the test.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "kv/page_key.h"

namespace quire {

using Bytes = std::vector<std::byte>;

inline PageKey sample_key(int number) {
  const TokenId token = number;
  return chain(root_key("sample", "", ""), {&token, 1});
}

inline Bytes sample_page(int number, size_t bytes) {
  Bytes page(bytes);
  uint64_t state = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& b : page) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return page;
}

// What HostTier and PageStore fill a page with. It keeps a reference.
inline auto fill_with(const Bytes& page) {
  return [&page](std::span<std::byte> to) {
    std::ranges::copy(page, to.begin());
    return true;
  };
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) all.push_back(entry.path());
    return all;
  }
  uint64_t file_bytes() const {
    uint64_t bytes = 0;
    for (const auto& file : files()) bytes += std::filesystem::file_size(file);
    return bytes;
  }

 private:
  std::filesystem::path path_;
};

inline Bytes file_content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

inline void write_content(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace quire
