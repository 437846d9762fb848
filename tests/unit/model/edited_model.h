// Copies of small golden models with something changed.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/mapped_file.h"
#include "paths.h"
#include "unit/model/edited_tensors.h"

namespace quire::testing {

// A Hugging Face directory in memory: read from a golden one, changed by the test, written to a directory of its own
// that lives as long as the object.
class EditedModel {
 public:
  // golden: a folder of models, or the path of another one from there.
  explicit EditedModel(std::string_view golden) {
    const auto folder = golden_dir() / "models" / golden;
    if (std::filesystem::exists(folder / "config.json"))
      config = nlohmann::json::parse(read_text_file(folder / "config.json"));
    tensors = read_tensors(Safetensors::open(folder));
  }
  EditedModel(const EditedModel&) = delete;
  EditedModel& operator=(const EditedModel&) = delete;
  ~EditedModel() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }

  nlohmann::json config;
  EditedTensors tensors;
  std::map<std::string, std::string> files;  // others, by name

  std::filesystem::path weights() const { return directory_ / "model.safetensors"; }

  const std::filesystem::path& write() {
    static int made = 0;
    directory_ = std::filesystem::temp_directory_path() /
                 ("quire-edited-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(directory_);
    files["config.json"] = config.dump();
    for (const auto& [file, text] : files) std::ofstream(directory_ / file, std::ios::binary) << text;
    write_tensors(tensors, weights());
    return directory_;
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace quire::testing
