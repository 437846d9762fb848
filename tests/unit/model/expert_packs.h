// Files of experts with known bytes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "model/packing/expert_file.h"

namespace quire::testing {

class ExpertPacks : public ::testing::Test {
 protected:
  static constexpr PackIdentity kIdentity{1, 2};

  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("quire-experts-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const size_t bytes : {5000, 4096, 64, 8192, 12288, 4160, 5000, 5000}) {
      std::vector<std::byte>& expert = experts_.emplace_back(bytes);
      for (size_t i = 0; i < bytes; ++i) expert[i] = static_cast<std::byte>(i * i + 31 * experts_.size());
      sizes_.push_back(bytes);
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::optional<ExpertFile> write(PackIdentity identity = kIdentity, bool keep = true) {
    ExpertFileWriter writer(folder_, identity, sizes_, keep);
    for (size_t i = experts_.size(); i-- > 0;) writer.write(i, experts_[i]);
    auto file = writer.finish();
    problem_ = writer.problem();
    return file;
  }
  std::optional<ExpertFile> open(PackIdentity identity = kIdentity) {
    return ExpertFile::open(folder_.string(), identity, sizes_,
                            [this](const std::string& text) { warnings_.push_back(text); });
  }
  std::vector<std::byte> read(const ExpertFile& file, size_t expert) const {
    std::vector<std::byte> bytes(file.bytes_of(expert));
    file.read(expert, bytes);
    return bytes;
  }
  std::filesystem::path path() const { return folder_ / "00000000000000010000000000000002.experts"; }
  // Where the format says that an expert begins.
  size_t begin_of(size_t expert) const {
    size_t begin = 4096;
    for (size_t i = 0; i < expert; ++i) begin += (sizes_[i] + 4095) / 4096 * 4096;
    return begin;
  }
  void flip_bit(size_t at) const {
    std::fstream stream(path(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  std::filesystem::path folder_;
  std::vector<std::vector<std::byte>> experts_;
  std::vector<size_t> sizes_;
  std::vector<std::string> warnings_;
  std::string problem_;
};

}  // namespace quire::testing
