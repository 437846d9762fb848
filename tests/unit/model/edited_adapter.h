// PEFT directories of LoRA adapters for small golden models, with something changed.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/files/mapped_file.h"
#include "paths.h"
#include "unit/model/edited_tensors.h"

namespace quire::testing {

// In memory: read from a golden adapter, changed by the test, written to a directory of its own that lives as long as the
// object.
class EditedAdapter {
 public:
  explicit EditedAdapter(const std::string& golden) {
    const auto folder = golden_dir() / "adapters" / golden;
    config = nlohmann::json::parse(read_text_file(folder / "adapter_config.json"));
    tensors = read_tensors(Safetensors::open(folder / "adapter_model.safetensors"));
  }
  EditedAdapter(const EditedAdapter&) = delete;
  EditedAdapter& operator=(const EditedAdapter&) = delete;
  ~EditedAdapter() {
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }

  nlohmann::json config;
  EditedTensors tensors;

  // Random float32 numbers in all tensors.
  void draw(unsigned seed) {
    std::mt19937 random(seed);
    for (auto& [name, t] : tensors) {
      uint64_t count = 1;
      for (const uint64_t size : t.shape) count *= size;
      std::vector<float> values(count);
      for (float& x : values) x = static_cast<float>(random() % 2001) / 5000.0f - 0.2f;
      t.type = "F32";
      t.bytes.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
  }

  std::string write() {
    static int made = 0;
    directory_ = std::filesystem::temp_directory_path() /
                 ("quire-adapter-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "adapter_config.json") << config.dump();
    write_tensors(tensors, directory_ / "adapter_model.safetensors");
    return directory_.string();
  }

 private:
  std::filesystem::path directory_;
};

}  // namespace quire::testing
