// GGUF vocabularies encode and decode as in llama.cpp.
#include "model/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files/mapped_file.h"
#include "paths.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Vocabulary {
  fs::path gguf, cases;
};

// Small vocabularies of our own, published ones where they are at hand, and those of downloaded models.
std::vector<Vocabulary> vocabularies() {
  const char* home = std::getenv("HOME");
  const fs::path downloads = fs::path(home ? home : "") / ".cache/quire/models";
  std::vector<Vocabulary> found;
  for (const fs::path& folder : golden_folders("vocab")) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const fs::path& cases = entry.path();
      if (cases.extension() != ".jsonl") continue;
      for (const fs::path& place : {folder, shared_dir() / "data/vocab", downloads}) {
        const fs::path gguf = place / (cases.stem().string() + ".gguf");
        if (!fs::exists(gguf)) continue;
        found.push_back({gguf, cases});
        break;
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.cases < b.cases; });
  return found;
}

std::string test_name(const fs::path& path) {
  std::string name = path.stem().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

// For some pre-tokenizers, llama_detokenize ends with three passes that remove spaces before punctuation. They would
// damage code that a model writes; llama.cpp's own server leaves them out, and so does Quire.
std::string without_spaces_before_punctuation(const std::string& text) {
  std::string first, second, third;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && text[i - 1] == ' ' && std::string_view("?!.,").find(text[i]) != std::string_view::npos)
      first.pop_back();
    first += text[i];
  }
  // The passes work in place: each reads what the one before wrote.
  std::string t = first;
  for (size_t i = 0; i < t.size(); ++i) {
    const char x = t[i];
    if (i > 0 && x == '\'' && i + 1 < t.size() && t[i - 1] == ' ' && t[i + 1] == ' ') {
      second.pop_back();
      t[++i] = '\0';
    }
    second += x;
  }
  t = second;
  for (size_t i = 0; i < t.size(); ++i) {
    const char x = t[i];
    if (i > 0 && t[i - 1] == ' ' && x == '\'' && i + 1 < t.size()) {
      const char a = t[i + 1], b = i + 2 < t.size() ? t[i + 2] : '\0';
      if (a == 's' || a == 'm' || (a == 'r' && b == 'e') || (a == 'v' && b == 'e')) third.pop_back();
    }
    third += x;
  }
  return third;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

class GgufTokenizer : public ::testing::TestWithParam<Vocabulary> {};

TEST_P(GgufTokenizer, EncodesLikeLlamaCpp) {
  const auto& [file, cases] = GetParam();
  const Gguf gguf = Gguf::open(file);
  const Tokenizer tokenizer = gguf_tokenizer(gguf);
  const std::string pre = gguf.get_or<std::string>("tokenizer.ggml.pre", "");
  const bool cleans = pre == "gpt-2" || pre == "falcon";
  int wrong = 0, count = 0;
  std::ifstream in(cases);
  for (std::string line; std::getline(in, line); ++count) {
    const json c = json::parse(line);
    const std::string text = c["text"];
    int before = wrong;
    for (int mode = 0; mode < 4; ++mode) {
      static const char* const kKeys[] = {"ids", "ids_add", "ids_parse", "ids_add_parse"};
      const TokenIds expected = c[kKeys[mode]];
      const TokenIds got = tokenizer.encode(text, {.add_special = (mode & 1) != 0, .parse_special = (mode & 2) != 0});
      if (got != expected && ++wrong <= 5) {
        EXPECT_EQ(got, expected) << kKeys[mode] << " of " << c["text"];
      }
    }
    // Not the text of decode(), which is always UTF-8: the bytes of the tokens.
    std::string detok;
    for (TokenId id : c["ids_parse"]) detok += tokenizer.token_bytes(id);
    const bool space_prefix = gguf.get<std::string>("tokenizer.ggml.model") == "llama" &&
                              gguf.get_or<bool>("tokenizer.ggml.add_space_prefix", true);
    const TokenIds ids = c["ids_parse"];
    if (space_prefix && !ids.empty() && tokenizer.token_bytes(ids[0]).starts_with(' ')) detok.erase(0, 1);
    if (cleans) detok = without_spaces_before_punctuation(detok);
    const std::string expected = c.contains("detok_hex") ? from_hex(c["detok_hex"]) : c["detok"].get<std::string>();
    if (detok != expected && ++wrong <= 5) {
      EXPECT_EQ(detok, expected) << c["text"];
    }
    if (!cleans && !c.contains("detok_hex")) {
      if (tokenizer.decode(ids) != expected && ++wrong <= 5) {
        EXPECT_EQ(tokenizer.decode(ids), expected);
      }
    }
    if (wrong > before + 8) break;
  }
  EXPECT_EQ(wrong, 0) << "in " << count << " cases";
  EXPECT_GT(count, 100);
}

INSTANTIATE_TEST_SUITE_P(All, GgufTokenizer, ::testing::ValuesIn(vocabularies()),
                         [](const auto& info) { return test_name(info.param.cases); });

class LlamaCppVocabulary : public ::testing::TestWithParam<fs::path> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LlamaCppVocabulary);

TEST_P(LlamaCppVocabulary, PassesLlamaCppsOwnTest) {
  const fs::path& file = GetParam();
  const Gguf gguf = Gguf::open(file);
  const Tokenizer tokenizer = gguf_tokenizer(gguf);
  const std::string input = read_text_file(file.string() + ".inp");
  std::istringstream expected(read_text_file(file.string() + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (size_t at = 0; at < input.size(); ++count) {
    const size_t end = std::min(input.find(separator, at), input.size());
    std::string line;
    ASSERT_TRUE(std::getline(expected, line));
    std::istringstream numbers(line);
    const TokenIds ids{std::istream_iterator<TokenId>(numbers), {}};
    EXPECT_EQ(tokenizer.encode(input.substr(at, end - at), {.parse_special = false}), ids)
        << input.substr(at, end - at);
    at = end + separator.size();
  }
  EXPECT_GT(count, 40);
}

std::vector<fs::path> llama_cpps_vocabularies() {
  std::vector<fs::path> found;
  for (const char* name : {"gpt-2", "falcon", "deepseek-llm", "llama-spm"}) {
    const fs::path file = shared_dir() / "data/vocab" / ("ggml-vocab-" + std::string(name) + ".gguf");
    if (fs::exists(file.string() + ".inp")) found.push_back(file);
  }
  return found;
}
INSTANTIATE_TEST_SUITE_P(All, LlamaCppVocabulary, ::testing::ValuesIn(llama_cpps_vocabularies()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace quire
