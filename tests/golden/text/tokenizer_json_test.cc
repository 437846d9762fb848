// tokenizer.json files encode and decode as with Hugging Face's library (data/tokenizers/README.md).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/gunzip.h"
#include "base/mapped_file.h"
#include "paths.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const fs::path kShared = shared_dir();

std::string read_packed(const fs::path& path) {
  if (fs::exists(path)) return read_text_file(path);
  const MappedFile file(path.string() + ".gz");
  return gunzip(file.bytes(), file.path().string());
}

std::vector<json> read_lines(const fs::path& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

class TokenizerJson : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    folder_ = kShared / "data/tokenizers" / GetParam();
    if (!fs::exists(folder_)) GTEST_SKIP() << folder_ << " is not here";
  }
  const Tokenizer& tokenizer() {
    static std::map<std::string, Tokenizer> made;  // reading some takes a second
    const auto found = made.find(GetParam());
    if (found != made.end()) return found->second;
    return made.emplace(GetParam(), Tokenizer::from_hf_json(read_packed(folder_ / "tokenizer.json"), GetParam()))
        .first->second;
  }
  fs::path folder_;
};

TEST_P(TokenizerJson, EncodesAndDecodesAsTheLibraryDoes) {
  int wrong = 0, cases = 0;
  for (const json& line : read_lines(folder_ / "cases.jsonl")) {
    ++cases;
    const std::string text = line["text"];
    const TokenIds ids = line["ids"], ids_special = line["ids_special"];
    const bool right = tokenizer().encode(text) == ids &&
                       tokenizer().encode(text, {.add_special = true}) == ids_special &&
                       tokenizer().decode(ids) == line["decoded"];
    if (!right && ++wrong <= 5) {
      EXPECT_EQ(tokenizer().encode(text), ids) << line["text"];
      EXPECT_EQ(tokenizer().encode(text, {.add_special = true}), ids_special) << line["text"];
      EXPECT_EQ(tokenizer().decode(ids), line["decoded"]);
    }
  }
  EXPECT_EQ(wrong, 0) << "of " << cases;
  EXPECT_GT(cases, 100);
}

TEST_P(TokenizerJson, StreamsPieceByPiece) {
  int cases = 0;
  for (const json& line : read_lines(folder_ / "stream.jsonl")) {
    ++cases;
    Detokenizer detokenizer(tokenizer());
    std::vector<std::string> pieces;
    for (TokenId id : line["ids"]) pieces.push_back(detokenizer.push(id));
    EXPECT_EQ(pieces, line["pieces"]) << line;
    EXPECT_EQ(detokenizer.finish(), line["flush"]) << line;
    EXPECT_EQ(tokenizer().decode(line["ids"].get<TokenIds>()), line["decoded"]) << line;
  }
  EXPECT_GT(cases, 20);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerJson,
                         testing::Values("gpt2", "smollm2", "llama-3.1", "qwen3", "gemma-3", "mistral-7b-v0.3",
                                         "llama-2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name;
                         });

TEST(SmolLm2, EncodesItsReferenceTexts) {
  const fs::path cases = kShared / "golden/smollm2/tokenizer.json", folder = kShared / "data/tokenizers/smollm2";
  if (!fs::exists(cases) || !fs::exists(folder)) GTEST_SKIP() << cases << " is not here";
  const Tokenizer tokenizer = Tokenizer::from_hf_json(read_packed(folder / "tokenizer.json"), "smollm2");
  const json file = json::parse(read_text_file(cases));
  for (const json& c : file["cases"]) {
    const TokenIds ids = c["ids"], parsed = c["ids_parse_special"];
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>(), {.parse_special = false}), ids) << c["text"];
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), parsed) << c["text"];
    EXPECT_EQ(tokenizer.decode(parsed), c["text"]);
  }
}

}  // namespace
}  // namespace quire
