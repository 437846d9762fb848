// A tokenizer.json as a GGUF vocabulary gives the same tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files/mapped_file.h"
#include "error_of.h"
#include "golden/text/packed_file.h"
#include "paths.h"
#include "text/convert/to_gguf.h"
#include "text/normalizer.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Pair {
  Tokenizer hf, gguf;
  GgufVocabularyData data;
};

GgufVocabulary view_of(const GgufVocabularyData& d) {
  GgufVocabulary v;
  v.model = d.model;
  v.pre = d.pre;
  v.tokens.assign(d.tokens.begin(), d.tokens.end());
  v.scores = d.scores;
  v.token_types = d.types;
  v.merges.assign(d.merges.begin(), d.merges.end());
  v.bos = d.bos, v.eos = d.eos, v.unk = d.unk, v.pad = d.pad, v.eot = d.eot;
  v.sep = d.sep;
  v.precompiled_charsmap = d.charsmap;
  v.add_bos = d.add_bos, v.add_eos = d.add_eos, v.add_sep = d.add_sep, v.add_space_prefix = d.add_space_prefix;
  v.remove_extra_whitespaces = d.remove_extra_whitespaces;
  v.lowercase = d.lowercase, v.strip_accents = d.strip_accents;
  return v;
}

Pair convert(const std::string& text, const std::string& name) {
  const Tokenizer hf = Tokenizer::from_hf_json(text, name);
  GgufVocabularyData data =
      gguf_vocabulary(hf, JsonField::parse(text, name), {hf.vocab_size() + 5, kNoToken, TokenIds{}});
  const Tokenizer gguf = Tokenizer::from_gguf(view_of(data), name);
  return {hf, gguf, std::move(data)};
}

// What llama.cpp does otherwise than the tokenizer.json says: it always puts a space before a text, and it does not
// normalise.
struct Known {
  const char* name;
  const char* pre;
  bool (*differs)(std::string_view text);
  const char* refused = "";  // the ordinary text for which such a model is refused
};
bool never(std::string_view) { return false; }
bool has_space_mark(std::string_view text) { return text.find("\xE2\x96\x81") != text.npos; }
bool starts_with_space(std::string_view text) { return text.starts_with(' ') || has_space_mark(text); }
bool is_denormal(std::string_view text) { return normalize_form(text, UnicodeForm::kNfc) != text; }
// Encoders' normalisers: of Korean and of rare characters, llama.cpp's are others.
bool is_beyond_latin(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) > 0xC3; });
}
bool is_beyond_latin_or_added(std::string_view text) {
  return is_beyond_latin(text) || text.find("quire") != text.npos;  // a token of its own, as a whole word only
}
// llama.cpp drops spaces at the ends of a text, and decides between equally good cuts of a run in its own way.
bool is_beyond_latin_or_spaced(std::string_view text) {
  return is_beyond_latin_or_added(text) || text.find_first_of("\t\n\r\v\f\x1c") != text.npos || text.starts_with(' ') ||
         text.ends_with(' ') || text.find("\xC2\xA0") != text.npos || text.find("----") != text.npos;
}
const Known kKnown[] = {
    {"byte_level", "gpt-2", never},
    {"byte_level_split", "llama-bpe", is_denormal},
    {"byte_fallback", "default", has_space_mark},
    {"metaspace", "default", starts_with_space},
    {"wordpiece_uncased", "default", is_beyond_latin_or_added},
    {"unigram", "default", is_beyond_latin_or_spaced, "trailing spaces   "},
    {"gpt2", "gpt-2", never},
    {"llama-3.1", "llama-bpe", never},
    {"smollm2", "starcoder", never},
    {"gemma-3", "default", has_space_mark},
    {"llama-2", "default", has_space_mark},
    {"mistral-7b-v0.3", "default", starts_with_space},
};

fs::path folder_of(const std::string& name) {
  for (const fs::path& parent : {golden_dir() / "tokenizers", shared_dir() / "data/tokenizers"}) {
    if (fs::exists(parent / name)) return parent / name;
  }
  return {};
}

class ToGguf : public ::testing::TestWithParam<Known> {
 protected:
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "no tokenizer " << GetParam().name;
  }
  const Pair& pair() {
    static std::map<fs::path, Pair> made;  // some take seconds to read
    const auto found = made.find(folder_);
    if (found != made.end()) return found->second;
    return made.emplace(folder_, convert(read_packed(folder_ / "tokenizer.json"), GetParam().name)).first->second;
  }
  const fs::path folder_ = folder_of(GetParam().name);
};

TEST_P(ToGguf, GivesTheSameTokens) {
  const Pair& pair = this->pair();
  EXPECT_EQ(pair.data.pre, GetParam().pre);
  EXPECT_EQ(compare_tokenizers(pair.hf, pair.gguf).ordinary, GetParam().refused);
  std::ifstream in(folder_ / "cases.jsonl");
  int compared = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string text = json::parse(line)["text"];
    // llama.cpp treats the white space next to added tokens in its own way.
    const TokenIds ids = pair.hf.encode(text);
    const bool has_added = !pair.hf.special_starts(text).empty() ||
                           std::ranges::any_of(ids, [&](TokenId id) { return pair.hf.is_added(id); });
    if (has_added || GetParam().differs(text)) continue;
    EXPECT_EQ(pair.gguf.encode(text), ids) << line;
    EXPECT_EQ(pair.gguf.encode(text, {.add_special = true}), pair.hf.encode(text, {.add_special = true})) << line;
    // Encoders' texts are not decoded: llama.cpp marks words, WordPiece their continuations.
    if (pair.data.model != "bert") EXPECT_EQ(pair.gguf.decode(ids), pair.hf.decode(ids)) << line;
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST_P(ToGguf, KeepsTheKindsOfTokens) {
  const Pair& pair = this->pair();
  EXPECT_EQ(pair.gguf.vocab_size(), pair.hf.vocab_size() + 5);
  EXPECT_EQ(pair.gguf.kind(pair.hf.vocab_size()), TokenKind::kUnused);
  for (TokenId id = 0; id < pair.hf.vocab_size(); ++id) {
    if (pair.hf.kind(id) == TokenKind::kUnused) continue;
    // llama.cpp makes end-of-turn tokens control tokens by their names.
    if (pair.gguf.kind(id) != TokenKind::kControl) EXPECT_EQ(pair.gguf.kind(id), pair.hf.kind(id)) << id;
    const bool is_spelled_alike = pair.hf.kind(id) == TokenKind::kNormal && pair.data.model != "bert";
    if (is_spelled_alike) EXPECT_EQ(pair.gguf.token_text(id), pair.hf.token_text(id)) << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, ToGguf, ::testing::ValuesIn(kKnown), [](const auto& known) {
  std::string name = known.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

json tokenizer_json(const std::string& name) {
  return json::parse(read_packed(golden_dir() / "tokenizers" / name / "tokenizer.json"));
}

TEST(ToGgufRefusals, NameWhatLlamaCppLacks) {
  const auto refusal = [](const json& changed) { return error_of([&] { convert(changed.dump(), "T"); }); };
  EXPECT_EQ(refusal(tokenizer_json("wordpiece_cased")),
            "T: normalizer: llama.cpp has BertNormalizer only, with clean_text and handle_chinese_chars");
  json odd = tokenizer_json("byte_level");
  odd["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", "[a-m]+"}}}, {"behavior", "Isolated"}}, odd["pre_tokenizer"]}}};
  EXPECT_EQ(refusal(odd), "T: pre_tokenizer: llama.cpp has no pre-tokenizer that splits texts in this way");
}

TEST(ToGgufWarnings, TellOfFramesThatCannotBeWritten) {
  json framed = tokenizer_json("byte_level");
  const auto special = framed["added_tokens"][0];
  const std::string text = special["content"];
  framed["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", text}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", text}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 0}}}}}},
      {"special_tokens", {{text, {{"id", text}, {"ids", {special["id"]}}, {"tokens", {text}}}}}}};
  const Pair pair = convert(framed.dump(), "T");
  EXPECT_EQ(pair.data.warnings,
            (std::vector<std::string>{
                "a GGUF file cannot say which tokens the tokenizer adds around a text; chats are not affected",
                "a GGUF file cannot say that the token \"<call>\" includes white space next to it"}));
  EXPECT_EQ(pair.data.add_bos, false);
}

}  // namespace
}  // namespace quire
