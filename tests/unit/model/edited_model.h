// Copies of small golden models with something changed.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/mapped_file.h"
#include "format/safetensors.h"
#include "paths.h"

namespace quire::testing {

struct EditedTensor {
  std::string type;
  std::vector<uint64_t> shape;
  std::string bytes;
};

// A Hugging Face directory in memory: read from a golden one, changed by the test, written to a directory of its own
// that lives as long as the object.
class EditedModel {
 public:
  // golden: a folder of models, or the path of another one from there.
  explicit EditedModel(std::string_view golden) {
    const auto folder = golden_dir() / "models" / golden;
    if (std::filesystem::exists(folder / "config.json"))
      config = nlohmann::json::parse(read_text_file(folder / "config.json"));
    const auto file = Safetensors::open(folder);
    for (const TensorView& t : file.tensors()) {
      tensors[std::string(t.name)] = {
          std::string(name(t.type)), t.shape, {reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size()}};
    }
  }
  EditedModel(const EditedModel&) = delete;
  EditedModel& operator=(const EditedModel&) = delete;
  ~EditedModel() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }

  nlohmann::json config;
  std::map<std::string, EditedTensor> tensors;
  std::map<std::string, std::string> files;  // others, by name

  std::filesystem::path weights() const { return directory_ / "model.safetensors"; }

  const std::filesystem::path& write() {
    static int made = 0;
    directory_ = std::filesystem::temp_directory_path() /
                 ("quire-edited-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(directory_);
    files["config.json"] = config.dump();
    for (const auto& [file, text] : files) std::ofstream(directory_ / file, std::ios::binary) << text;
    nlohmann::json header;
    size_t end = 0;
    for (const auto& [tensor, t] : tensors) {
      header[tensor] = {{"dtype", t.type}, {"shape", t.shape}, {"data_offsets", {end, end + t.bytes.size()}}};
      end += t.bytes.size();
    }
    const std::string text = header.dump();
    const uint64_t size = text.size();
    std::ofstream out(weights(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out << text;
    for (const auto& [tensor, t] : tensors) out << t.bytes;
    return directory_;
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace quire::testing
