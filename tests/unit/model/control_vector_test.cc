// Control vectors: what their files may have, and how they add up.

#include "model/adapter/control_vector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "error_of.h"
#include "format/gguf_writer.h"
#include "model/checkpoint.h"
#include "model/families.h"
#include "paths.h"

namespace quire {
namespace {

constexpr uint64_t kHidden = 64;  // of models/llama, which has 3 layers

ModelConfig llama_config() { return read_model_config(Checkpoint::open(golden_dir() / "models/llama")); }

struct VectorFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("quire-control-vector-" + std::to_string(::getpid()) + ".gguf");
  ~VectorFile() { std::filesystem::remove(path); }

  // Tensors of equal numbers.
  void write(const std::vector<std::pair<std::string, float>>& tensors, uint64_t size = kHidden,
             std::string_view architecture = "controlvector") {
    GgufHeader header;
    if (!architecture.empty()) header.string("general.architecture", architecture);
    for (const auto& [name, value] : tensors) header.tensor(name, TensorType::F32, {size});
    std::ofstream out(path, std::ios::binary);
    out << header.spell();
    std::string bytes(header.bytes_of_data(), '\0');
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::vector<float> values(size, tensors[i].second);
      std::memcpy(bytes.data() + header.tensors()[i].offset, values.data(), size * sizeof(float));
    }
    out << bytes;
  }
};

TEST(ControlVectors, AddUpWithinTheirLayers) {
  const ModelConfig config = llama_config();
  VectorFile file;
  file.write({{"direction.1", 2}, {"direction.2", 3}});
  ControlVectors all(config, 1, 0);
  EXPECT_EQ(all.bytes(), 0u);
  all.add(file.path.string(), 1);
  all.add(file.path.string(), -0.25f);
  ASSERT_EQ(all.directions().size(), 3u);
  EXPECT_TRUE(all.directions()[0].empty());
  EXPECT_EQ(all.directions()[1], std::vector<float>(kHidden, 1.5f));
  EXPECT_EQ(all.directions()[2], std::vector<float>(kHidden, 2.25f));
  EXPECT_EQ(all.bytes(), 2 * kHidden * sizeof(float));
  ControlVectors one(config, 2, 2);
  one.add(file.path.string(), 1);
  EXPECT_TRUE(one.directions()[1].empty());
  EXPECT_EQ(one.directions()[2], std::vector<float>(kHidden, 3.0f));
  EXPECT_NE(one.identity(), all.identity());
}

TEST(ControlVectors, RefuseOtherFilesAndModels) {
  const ModelConfig config = llama_config();
  VectorFile file;
  const auto refusal = [&](const std::string& path) {
    return error_of([&] { ControlVectors(config, 1, 0).add(path, 1); });
  };
  const auto refused = [&](std::string_view words) {
    const std::string error = refusal(file.path.string());
    EXPECT_NE(error.find(words), std::string::npos) << error;
  };
  file.write({{"direction.1", 1}}, kHidden, "");  // llama.cpp asks for nothing but the tensors
  EXPECT_EQ(refusal(file.path.string()), "");
  file.write({{"direction.1", 1}}, kHidden, "llama");
  refused("is no control vector: its general.architecture is \"llama\"");
  file.write({{"direction.1", 1}}, 32);
  refused("has shape [32], but the model's hidden states have 64 numbers");
  file.write({{"direction.3", 1}});
  refused("its last one is 2");
  for (const char* name : {"direction.0", "direction.x", "direction.", "direction.1x", "output.weight"}) {
    file.write({{name, 1}});
    refused("is no direction of a control vector");
  }
  file.write({{"direction.1", std::numeric_limits<float>::infinity()}});
  refused("the file is damaged");
  file.write({});
  refused("has no tensors");
  EXPECT_NE(refusal((golden_dir() / "adapters/qwen2.gguf").string()).find("is no control vector"), std::string::npos);
  EXPECT_NE(refusal("/nowhere/at/all.gguf"), "");
}

TEST(ControlVectors, RefuseLayersThatTheModelDoesNotHave) {
  const ModelConfig config = llama_config();
  for (const auto& [first, last] : std::vector<std::pair<int, int>>{{0, 2}, {2, 1}, {1, 3}, {3, 0}, {-1, 1}})
    EXPECT_NE(error_of([&, from = first, to = last] {
                ControlVectors(config, from, to);
              }).find("the model has the layers 1 to 2"),
              std::string::npos)
        << first << " " << last;
}

}  // namespace
}  // namespace quire
