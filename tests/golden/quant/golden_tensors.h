// A reader of safetensors without checks, for files of our own: the quant library does not link the format library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/files/mapped_file.h"
#include "paths.h"

namespace quire {

class GoldenTensors {
 public:
  explicit GoldenTensors(const std::filesystem::path& path) : file_(path) {
    uint64_t size = 0;
    std::memcpy(&size, file_.bytes().data(), 8);
    const auto* text = reinterpret_cast<const char*>(file_.bytes().data()) + 8;
    header_ = nlohmann::json::parse(text, text + size);
    data_ = file_.bytes().subspan(8 + size);
  }

  const nlohmann::json& metadata() const { return header_["__metadata__"]; }

  std::span<const std::byte> bytes(const char* name) const {
    const auto& offsets = header_[name]["data_offsets"];
    const auto begin = offsets[0].get<size_t>();
    return data_.subspan(begin, offsets[1].get<size_t>() - begin);
  }

  template <class T>
  std::vector<T> values(const char* name) const {
    const auto from = bytes(name);
    std::vector<T> out(from.size() / sizeof(T));
    std::memcpy(out.data(), from.data(), from.size());
    return out;
  }

 private:
  MappedFile file_;
  nlohmann::json header_;
  std::span<const std::byte> data_;
};

// Golden data of this checkout or, where it has none, next to it.
inline std::filesystem::path golden_file(const std::string& folder, const std::string& name) {
  const auto folders = golden_folders(folder);
  const auto path = folders.front() / name;
  return std::filesystem::exists(path) ? path : folders.back() / name;
}

}  // namespace quire
