// tokenizer.json files encode, decode and stream as in Hugging Face's library: small ones of our own, and published
// ones where they are at hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files/mapped_file.h"
#include "golden/text/packed_file.h"
#include "paths.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<json> read_lines(const fs::path& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

class TokenizerJson : public ::testing::TestWithParam<fs::path> {
 protected:
  const Tokenizer& tokenizer() {
    static std::map<fs::path, Tokenizer> made;  // some take a second to read
    const auto found = made.find(folder_);
    if (found != made.end()) return found->second;
    return made.emplace(folder_, Tokenizer::from_hf_json(read_packed(folder_ / "tokenizer.json"), folder_.string()))
        .first->second;
  }
  const fs::path folder_ = GetParam();
};

TEST_P(TokenizerJson, EncodesAndDecodesLikeTheLibrary) {
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

class TokenizerJsonPairs : public TokenizerJson {};

TEST_P(TokenizerJsonPairs, AreEncodedLikeTheLibrary) {
  int cases = 0, of_type_1 = 0;
  for (const json& line : read_lines(folder_ / "pairs.jsonl")) {
    ++cases;
    const TokenPair pair = tokenizer().encode_pair(line["a"].get<std::string>(), line["b"].get<std::string>(),
                                                   line["most"], /*parse_special=*/true);
    EXPECT_EQ(pair.ids, line["ids"].get<TokenIds>()) << line;
    EXPECT_EQ(pair.second, line["second"].get<size_t>()) << line;
    if (pair.second < pair.ids.size()) ++of_type_1;
  }
  EXPECT_GT(cases, 50);
  if (folder_.filename().string().starts_with("wordpiece")) {
    EXPECT_GT(of_type_1, 50);
  }
}

std::vector<fs::path> tokenizer_folders() {
  std::vector<fs::path> folders;
  for (const fs::path& root : {golden_dir() / "tokenizers", shared_dir() / "data/tokenizers"}) {
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<fs::path> folders_with_pairs() {
  std::vector<fs::path> folders = tokenizer_folders();
  std::erase_if(folders, [](const fs::path& folder) { return !fs::exists(folder / "pairs.jsonl"); });
  return folders;
}

std::string test_name(const ::testing::TestParamInfo<fs::path>& info) {
  std::string name = info.param.filename().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerJson, ::testing::ValuesIn(tokenizer_folders()), test_name);
INSTANTIATE_TEST_SUITE_P(All, TokenizerJsonPairs, ::testing::ValuesIn(folders_with_pairs()), test_name);

// Our own test strings for SmolLM2's vocabulary, which is not ours: where it is at hand.
class SmolLm2Tokenizer : public ::testing::TestWithParam<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SmolLm2Tokenizer);

TEST_P(SmolLm2Tokenizer, EncodesTheReferencesTexts) {
  const Tokenizer tokenizer = Tokenizer::from_hf_json(read_packed(GetParam() / "tokenizer.json"), "smollm2");
  const json file = json::parse(read_text_file(shared_dir() / "golden/smollm2/tokenizer.json"));
  for (const json& c : file["cases"]) {
    const TokenIds ids = c["ids"], parsed = c["ids_parse_special"];
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>(), {.parse_special = false}), ids) << c["text"];
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), parsed) << c["text"];
    EXPECT_EQ(tokenizer.decode(parsed), c["text"]);
  }
}

std::vector<fs::path> smollm2_folders() {
  const fs::path folder = shared_dir() / "data/tokenizers/smollm2";
  return fs::exists(folder) ? std::vector{folder} : std::vector<fs::path>();
}
INSTANTIATE_TEST_SUITE_P(Outside, SmolLm2Tokenizer, ::testing::ValuesIn(smollm2_folders()),
                         [](const auto&) { return "smollm2"; });

}  // namespace
}  // namespace quire
