// Files written by other programs open and hold what their index says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "format/gguf.h"
#include "format/hf_config.h"
#include "format/safetensors.h"
#include "paths.h"

namespace quire {
namespace {

std::vector<std::filesystem::path> files(const std::filesystem::path& folder, const std::string& extension) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == extension) out.push_back(entry.path());
  }
  return out;
}

// Those of the golden data in the repository and of the further data outside.
std::vector<std::filesystem::path> golden_files(const std::string& extension) {
  std::vector<std::filesystem::path> out;
  for (const auto& folder : golden_folders("")) {
    for (auto& path : files(folder, extension)) out.push_back(std::move(path));
  }
  return out;
}

void expect_models_as_in_the_index(const std::filesystem::path& folder) {
  const auto index = nlohmann::json::parse(std::ifstream(folder / "index.json"));
  size_t with_counts = 0;
  for (const auto& path : files(folder, ".gguf")) {
    const Gguf g = Gguf::open(path);
    EXPECT_EQ(g.get<std::string>("general.architecture"), "llama") << path;
    EXPECT_EQ(g.strings("tokenizer.ggml.tokens").size(), g.numbers<float>("tokenizer.ggml.scores").size());
    ASSERT_NE(g.find_tensor("token_embd.weight"), nullptr);
    EXPECT_EQ(g.find_tensor("token_embd.weight")->shape.at(0), g.strings("tokenizer.ggml.tokens").size());
    EXPECT_EQ(g.find_tensor("token_embd.weight")->shape.at(1), g.get<uint64_t>("llama.embedding_length"));
    std::map<std::string, int> types;
    for (const auto& t : g.tensors()) ++types[std::string(name(t.type))];
    const auto entry = index["files"].find(path.filename().string());
    if (entry == index["files"].end()) continue;
    ++with_counts;
    EXPECT_EQ(nlohmann::json(types), (*entry)["tensor_types"]) << path;
  }
  EXPECT_GT(with_counts, 0u);
}

TEST(GoldenGguf, ModelsHaveTheTensorTypesOfTheirIndex) {
  for (const auto& folder : golden_folders("formats/gguf-models")) expect_models_as_in_the_index(folder);
}

TEST(GoldenGguf, VocabulariesOpenWithoutTensors) {
  auto paths = files(golden_dir() / "vocab", ".gguf");
  if (const auto outside = shared_dir() / "data/vocab"; std::filesystem::exists(outside)) {
    for (auto& path : files(outside, ".gguf")) paths.push_back(std::move(path));
  }
  EXPECT_GE(paths.size(), 2u);
  for (const auto& path : paths) {
    const Gguf g = Gguf::open(path);
    EXPECT_TRUE(g.tensors().empty()) << path;
    EXPECT_GE(g.strings("tokenizer.ggml.tokens").size(), 690u) << path;
    for (const auto key : g.keys()) EXPECT_NE(g.find(key), nullptr);
  }
}

TEST(GoldenSafetensors, AllOpen) {
  const auto paths = golden_files(".safetensors");
  EXPECT_GE(paths.size(), 30u);
  for (const auto& path : paths) {
    const Safetensors s = Safetensors::open(path);
    EXPECT_FALSE(s.tensors().empty()) << path;
    for (const auto& t : s.tensors()) EXPECT_EQ(s.find_tensor(t.name), &t);
  }
}

TEST(GoldenHfConfig, AllModelFoldersOpen) {
  size_t opened = 0;
  for (const auto& path : golden_files(".json")) {
    const bool of_module = std::filesystem::exists(path.parent_path().parent_path() / "modules.json");
    if (path.filename() != "config.json" || of_module) continue;
    const HfConfig c = HfConfig::open(path.parent_path());
    end_tokens(c);
    ++opened;
    if (std::filesystem::exists(path.parent_path() / "model.safetensors")) {
      EXPECT_FALSE(c.config.get<std::string>("model_type").empty()) << path;
      EXPECT_FALSE(Safetensors::open(path.parent_path()).tensors().empty()) << path;
    }
  }
  EXPECT_GE(opened, 6u);
}

}  // namespace
}  // namespace quire
