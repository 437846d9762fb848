#include "format/hf_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "error_of.h"

namespace quire {
namespace {

EndTokens ends(std::string_view config, std::string_view generation) {
  HfConfig c{JsonField::parse(config, "config.json"), std::nullopt, std::nullopt};
  if (!generation.empty()) c.generation = JsonField::parse(generation, "generation_config.json");
  return end_tokens(c);
}

TEST(EndTokens, ComeFromTheGenerationConfigFirst) {
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", "").eos, TokenIds{2});
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", "").bos, 1);
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", R"({"eos_token_id":[5,6,5]})").eos, (TokenIds{5, 6}));
  EXPECT_EQ(ends(R"({"eos_token_id":2,"bos_token_id":1})", R"({"eos_token_id":[5,6]})").bos, 1);
  EXPECT_EQ(ends(R"({"text_config":{"eos_token_id":[7]}})", "").eos, TokenIds{7});
  EXPECT_EQ(ends(R"({"eos_token_id":null,"bos_token_id":-1})", "{}").bos, kNoToken);
  EXPECT_TRUE(ends("{}", "").eos.empty());
  EXPECT_EQ(error_of([] { ends("{}", R"({"eos_token_id":[1,"a"]})"); }),
            "generation_config.json: eos_token_id[1]: expected an integer from -2147483648 to 2147483647, found \"a\"");
  EXPECT_THROW(ends(R"({"eos_token_id":"</s>"})", ""), Error);
  EXPECT_THROW(ends(R"({"eos_token_id":4294967296})", ""), Error);
}

TEST(HfConfig, ReadsPythonsInfinityAsNull) {
  const auto folder = std::filesystem::temp_directory_path() / "quire_hf_config_infinity";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"limits": [0.0, Infinity], "name": "to \"Infinity", "last": Infinity})";
  const JsonField config = HfConfig::open(folder).config;
  EXPECT_EQ(config.at("limits").json().dump(), "[0.0,null]");
  EXPECT_EQ(config.get<std::string>("name"), "to \"Infinity");
  EXPECT_FALSE(config.has("last"));
  std::filesystem::remove_all(folder);
}

TEST(HfConfig, NeedsOnlyConfigJson) {
  const auto folder = std::filesystem::temp_directory_path() / "quire_hf_config";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  EXPECT_NE(error_of([&] { HfConfig::open(folder); }).find("config.json"), std::string::npos);
  std::ofstream(folder / "config.json") << R"({"model_type":"llama"})";
  EXPECT_EQ(HfConfig::open(folder).config.get<std::string>("model_type"), "llama");
  EXPECT_FALSE(HfConfig::open(folder).generation.has_value());
  std::ofstream(folder / "generation_config.json") << "{";
  EXPECT_NE(error_of([&] { HfConfig::open(folder); }).find("generation_config.json"), std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace quire
