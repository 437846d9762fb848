// A synthetic model file for engine tests, written once for a test program.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "model/synth.h"

namespace quire::testing {

// Files made by a test program; removed when it ends.
struct TinyModels {
  std::map<std::tuple<TensorType, int, int, int>, std::string> made;
  std::string smallest;  // empty: not made

  ~TinyModels() {
    std::error_code ignored;
    for (const auto& [what, path] : made) std::filesystem::remove(path, ignored);
    if (!smallest.empty()) std::filesystem::remove(smallest, ignored);
  }
};
inline TinyModels tiny_models;

// Three query heads a KV head; two layers, 320 tokens of vocabulary. `window`: of all layers; 0: none. `experts`: of
// which a token uses two; 0: one MLP.
inline std::string tiny_model(TensorType type = TensorType::Q4_1, int context = 512, int window = 0, int experts = 0) {
  std::string& path = tiny_models.made[{type, context, window, experts}];
  if (path.empty()) {
    const std::string file = "quire-tiny-" + std::to_string(::getpid()) + "-" + std::string(name(type)) + "-" +
                             std::to_string(context) + "-" + std::to_string(window) + "-" + std::to_string(experts) +
                             ".gguf";
    path = (std::filesystem::temp_directory_path() / file).string();
    SynthShape shape{"tiny", 2, 256, 6, 2, 32, 512, 320, context, 10000, false};
    shape.window = window;
    shape.experts = experts;
    shape.experts_used = experts > 0 ? 2 : 0;
    write_synthetic_model(path, shape, type, 5);
  }
  return path;
}

// A sixteenth of it, for the emulated GPU: one head, whose keys and values are half as large in all.
inline const std::string& smallest_model() {
  std::string& path = tiny_models.smallest;
  if (path.empty()) {
    path =
        (std::filesystem::temp_directory_path() / ("quire-smallest-" + std::to_string(::getpid()) + ".gguf")).string();
    write_synthetic_model(path, {"smallest", 2, 32, 1, 1, 32, 64, 320, 128, 10000, false}, TensorType::Q8_0, 5);
  }
  return path;
}

}  // namespace quire::testing
