// What loading and inspecting say of a model that is not as it should be.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "cli/inspect/report.h"
#include "engine/loaded_model.h"

namespace quire::testing {

inline constexpr uint16_t kBf16Nan = 0x7FC0, kBf16Infinity = 0x7F80, kF16Infinity = 0x7C00, kF16Nan = 0x7E00;

inline std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}
inline std::string message_of_loading(const std::filesystem::path& path) {
  return message_of([&] {
    EngineOptions o;
    o.model = path.string();
    o.threads = 2;
    o.max_num_seqs = 1;
    LoadedModel model(o);
  });
}
inline std::string message_of_inspecting(const std::filesystem::path& path) {
  return message_of([&] {
    const auto runs = inspect(path, 10).at("runs");
    if (!runs.at("ok")) throw Error(ErrorKind::kInvalid, runs.at("why_not"));
  });
}

// With M for the model's path.
inline std::string shortened(std::string message, const std::filesystem::path& path) {
  for (size_t at; (at = message.find(path.string())) != std::string::npos;)
    message.replace(at, path.string().size(), "M");
  return message;
}

enum class SeenBy { kBoth, kLoading };  // inspecting reads no data

inline void expect_refused(const std::filesystem::path& path, const std::string& expected, SeenBy seen_by) {
  EXPECT_EQ(shortened(message_of_loading(path), path), expected);
  EXPECT_EQ(shortened(message_of_inspecting(path), path), seen_by == SeenBy::kBoth ? expected : "accepted");
}

inline void overwrite(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

class GgufFile {
 public:
  explicit GgufFile(const std::string& bytes)
      : path(std::filesystem::temp_directory_path() / ("quire-bad-" + std::to_string(::getpid()) + ".gguf")) {
    overwrite(path, bytes);
  }
  ~GgufFile() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};

}  // namespace quire::testing
