// Tensors of a safetensors file that a test changes and writes again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "format/safetensors.h"

namespace quire::testing {

struct EditedTensor {
  std::string type;
  std::vector<uint64_t> shape;
  std::string bytes;
};
using EditedTensors = std::map<std::string, EditedTensor>;

inline EditedTensors read_tensors(const Safetensors& file) {
  EditedTensors tensors;
  for (const TensorView& t : file.tensors()) {
    tensors[std::string(t.name)] = {
        std::string(name(t.type)), t.shape, {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}};
  }
  return tensors;
}

inline void write_tensors(const EditedTensors& tensors, const std::filesystem::path& path) {
  nlohmann::json header;
  size_t end = 0;
  for (const auto& [tensor, t] : tensors) {
    header[tensor] = {{"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes.size()}}};
    end += t.bytes.size();
  }
  const std::string text = header.dump();
  const uint64_t size = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << text;
  for (const auto& [tensor, t] : tensors) out << t.bytes;
}

}  // namespace quire::testing
