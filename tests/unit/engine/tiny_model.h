// A synthetic model file for engine tests, written once for a test program.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>

#include "model/synth.h"

namespace quire::testing {

// Three query heads a KV head and a window-free llama; two layers, 320 tokens of vocabulary.
inline std::string tiny_model(TensorType type = TensorType::Q4_1) {
  static std::map<TensorType, std::string> made;
  std::string& path = made[type];
  if (path.empty()) {
    path = (std::filesystem::temp_directory_path() /
            ("quire-tiny-" + std::to_string(::getpid()) + "-" + std::string(name(type)) + ".gguf"))
               .string();
    write_synthetic_model(path, {"tiny", 2, 256, 6, 2, 32, 512, 320, 512, 10000, false}, type, 5);
  }
  return path;
}

// Removes the files when the program ends.
struct TinyModels {
  ~TinyModels() {
    for (const TensorTypeInfo& type : tensor_types()) {
      std::error_code ignored;
      std::filesystem::remove(std::filesystem::temp_directory_path() /
                                  ("quire-tiny-" + std::to_string(::getpid()) + "-" + std::string(type.name) + ".gguf"),
                              ignored);
    }
  }
};
inline TinyModels tiny_models;

}  // namespace quire::testing
