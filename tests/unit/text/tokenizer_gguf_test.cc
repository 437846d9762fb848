#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gguf_samples.h"

namespace quire {
namespace {

std::string error_of_gguf(Sample s) {
  try {
    s.make();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GgufTokenizer, MergesByScore) {
  Sample s = sentence_piece();
  const Tokenizer t = s.make();
  EXPECT_EQ(t.encode("ab"), (TokenIds{*t.find("▁a"), *t.find("b")}));  // the better score comes first
  EXPECT_EQ(t.encode("ab", {.add_special = true}), (TokenIds{1, *t.find("▁a"), *t.find("b")}));
  EXPECT_EQ(t.decode(t.encode("ab é\n")), "ab é\n");
  EXPECT_EQ(t.encode("<s>a"), (TokenIds{1, *t.find("▁a")}));
  EXPECT_EQ(t.encode("<s>", {.parse_special = false}), t.encode("\x3Cs>", {.parse_special = false}));
  EXPECT_EQ(t.encode(""), TokenIds{});
  EXPECT_EQ(t.encode("\xFF"), (TokenIds{*t.find("▁"), 3 + 0xFF}));  // ill-formed bytes stay
}

TEST(GgufTokenizer, MergesACharacterWithoutATokenOfItsOwn) {
  Sample s = sentence_piece();
  const TokenId joined = s.add("aé", 1, -1);
  const Tokenizer t = s.make();
  EXPECT_EQ(t.encode("baé"), (TokenIds{*t.find("▁"), *t.find("b"), joined}));
  EXPECT_EQ(t.encode("bé"), (TokenIds{*t.find("▁"), *t.find("b"), 3 + 0xC3, 3 + 0xA9}));
}

TEST(GgufTokenizer, ListsTheTokensThatEndAnAnswer) {
  Sample s = byte_level();
  const TokenId im_end = s.add("<|im_end|>", 1), user = s.add("<|message|>", 3), pad = s.add("<|fim_pad|>", 3);
  s.vocabulary.eos = s.add("</s>", 3);
  const Tokenizer t = s.make();
  EXPECT_EQ(TokenIds(t.end_of_generation().begin(), t.end_of_generation().end()),
            (TokenIds{im_end, pad, *s.vocabulary.eos}));
  EXPECT_TRUE(t.is_control(im_end)) << "whatever its type says";
  EXPECT_EQ(t.eot(), im_end);
  EXPECT_EQ(t.kind(user), TokenKind::kUserDefined);
  EXPECT_TRUE(std::ranges::binary_search(t.end_of_generation(), im_end));
  EXPECT_FALSE(std::ranges::binary_search(t.end_of_generation(), 'a'));
}

TEST(GgufTokenizer, SpecialTokensOfPhi3IncludeTheWhiteSpaceAfterThem) {
  Sample s = sentence_piece();
  const TokenId user = s.add("<|user|>", 4), end = s.add("<|end|>", 3), text_end = s.add("<|endoftext|>", 3);
  const std::string text = "<|user|> \n a<|end|>\t\v <|user|>a<|endoftext|> a<s> a";
  const TokenIds a = s.make().encode("a"), space_a = s.make().encode(" a");
  const auto joined = [](std::vector<TokenIds> parts) {
    TokenIds all;
    for (const TokenIds& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  s.vocabulary.model_name = "Phi 2";
  EXPECT_EQ(s.make().encode(text).size(), joined({{user},
                                                  s.make().encode(" \n a"),
                                                  {end},
                                                  s.make().encode("\t\v "),
                                                  {user},
                                                  a,
                                                  {text_end},
                                                  space_a,
                                                  {1},
                                                  space_a})
                                              .size());
  for (const char* name : {"Phi-3 mini", "microsoft_Phi3.5"}) {
    s.vocabulary.model_name = name;
    const Tokenizer t = s.make();
    EXPECT_EQ(t.encode(text), joined({{user}, a, {end}, {user}, a, {text_end}, space_a, {1}, space_a})) << name;
    EXPECT_EQ(t.encode("<|end|>  "), TokenIds{end}) << name;
    EXPECT_GT(t.encode("<|end|>  ", {.parse_special = false}).size(), 5u) << name;
  }
}

TEST(GgufTokenizer, MasksIncludeTheWhiteSpaceBeforeThem) {
  Sample s = xlm_roberta();
  const TokenId mask = s.add("<mask>", 3), a = 6;
  s.vocabulary.remove_extra_whitespaces = false;
  const TokenIds apart = s.make().encode("a \t<mask> a");
  EXPECT_EQ(apart.size(), 6u) << "▁a ▁ <unk> <mask> ▁ ▁a";
  s.vocabulary.architecture = "nomic-bert-moe";
  EXPECT_EQ(s.make().encode("a \t<mask>a"), (TokenIds{a, mask, a}));
  EXPECT_EQ(s.make().encode(" <mask> <mask>"), (TokenIds{mask, mask}));
}

TEST(GgufTokenizer, ShowsTheEndTokenOfHarmony) {
  Sample s = byte_level();
  const TokenId end = s.add("<|end|>", 3);
  const TokenId ret = s.add("<|return|>", 3), call = s.add("<|call|>", 3);
  s.vocabulary.eos = ret;
  const Tokenizer t = s.make();
  EXPECT_EQ(TokenIds(t.end_of_generation().begin(), t.end_of_generation().end()), (TokenIds{ret, call}));
  EXPECT_EQ(t.kind(end), TokenKind::kUserDefined);
}

TEST(GgufTokenizer, AllowsMergesOfTextsThatAreNotTokens) {
  Sample s = byte_level();
  s.merges = {"a b", "x y", "xy z"};  // neither xy nor xyz is a token
  const Tokenizer t = s.make();
  EXPECT_EQ(t.encode("xyzab"), (TokenIds{'x', 'y', 'z', 256}));
}

// What a file without tokenizer.ggml.pre is taken for.
TEST(GgufTokenizer, WarnsOfAMissingPreTokenizer) {
  EXPECT_TRUE(byte_level().make().warnings().empty());
  EXPECT_TRUE(sentence_piece().make().warnings().empty());  // has none
  EXPECT_TRUE(word_piece({"▁a"}).make().warnings().empty());
  const auto words = [](const std::vector<std::string>& special, int filler,
                        const std::string& architecture = "llama") {
    Sample s = byte_level();
    s.vocabulary.pre = "";
    s.vocabulary.architecture = architecture;
    for (int i = 0; i < filler; ++i) s.add("<filler" + std::to_string(i) + ">", 1);
    for (const std::string& text : special) s.add(text, 3);
    const Tokenizer tokenizer = s.make();
    EXPECT_EQ(tokenizer.warnings().size(), 1u);
    const std::string& warning = tokenizer.warnings().front();
    EXPECT_TRUE(warning.starts_with("sample.gguf: tokenizer.ggml.pre is missing")) << warning;
    return warning;
  };
  const auto names = [](const std::string& warning, const std::string& pre) {
    return warning.find("looks like that of \"" + pre + "\"") != std::string::npos;
  };
  EXPECT_NE(words({}, 0).find("as llama.cpp does by default"), std::string::npos);
  EXPECT_NE(words({"<|endoftext|>"}, 0).find("as llama.cpp does by default"), std::string::npos);
  EXPECT_TRUE(names(words({"<|begin_of_text|>", "<|start_header_id|>"}, 0), "llama-bpe"));
  EXPECT_TRUE(names(words({">>TITLE<<", ">>ABSTRACT<<"}, 0), "falcon"));
  EXPECT_TRUE(names(words({"<|endoftext|>"}, 50256 - 257), "gpt-2"));
  EXPECT_TRUE(names(words({"<|endoftext|>"}, 151643 - 257), "qwen2"));
  EXPECT_TRUE(names(words({}, 0, "bloom"), "bloom"));
}

TEST(GgufTokenizer, SplitsByTheFamilyThatItRecognizes) {
  const auto ids = [](const std::string& pre, bool llama3) {
    Sample s = byte_level();
    s.vocabulary.pre = pre;
    s.vocabulary.add_bos = false;
    s.merges = {"1 2", "12 3", "123 4"};
    for (const char* text : {"12", "123", "1234"}) s.add(text, 1);
    if (llama3) s.add("<|begin_of_text|>", 3), s.add("<|start_header_id|>", 3);
    return s.make().encode("1234");
  };
  EXPECT_EQ(ids("", true), ids("llama-bpe", true));
  EXPECT_EQ(ids("", false), ids("default", false));
  EXPECT_NE(ids("", true), ids("gpt-2", true));
}

TEST(GgufTokenizer, WarnsOfMissingScores) {
  for (Sample s : {sentence_piece(), xlm_roberta(), byte_level()}) {
    s.vocabulary.scores.clear();
    const Tokenizer tokenizer = s.make();
    const bool needs_scores = s.vocabulary.model != "gpt2";
    ASSERT_EQ(tokenizer.warnings().size(), needs_scores ? 1u : 0u);
    if (needs_scores) {
      EXPECT_NE(tokenizer.warnings()[0].find("tokenizer.ggml.scores is missing"), std::string::npos);
    }
  }
}

TEST(GgufTokenizer, WarnsOfMissingTokenTypes) {
  for (Sample s : {byte_level(), sentence_piece()}) {
    s.vocabulary.token_types.clear();
    const Tokenizer tokenizer = s.make();
    ASSERT_EQ(tokenizer.warnings().size(), 1u);
    EXPECT_NE(tokenizer.warnings()[0].find("tokenizer.ggml.token_type is missing"), std::string::npos);
  }
}

TEST(GgufTokenizer, RefusesABrokenVocabulary) {
  const auto broken = [](auto change) {
    Sample s = byte_level();
    change(s);
    return error_of_gguf(std::move(s));
  };
  EXPECT_NE(broken([](Sample& s) { s.vocabulary.model = "rwkv"; }).find("the tokenizer \"rwkv\""), std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.vocabulary.pre = "new"; }).find("unknown pre-tokenizer \"new\""),
            std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.merges.clear(); }).find("merges is empty"), std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.texts.clear(); }).find("tokens is empty"), std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.texts[7] = "a"; }).find("appears twice"), std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.vocabulary.scores.pop_back(); }).find("scores has 256"), std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.vocabulary.token_types.pop_back(); }).find("token_type has 256"),
            std::string::npos);
  EXPECT_NE(broken([](Sample& s) { s.vocabulary.scores[3] = std::nanf(""); }).find("score of token 3"),
            std::string::npos);
  EXPECT_NE(broken([](Sample& s) {
              s.texts.resize(5);
              s.merges = {"a b"};
              s.vocabulary.add_bos = true;
            }).find("without a BOS"),
            std::string::npos);
  EXPECT_EQ(broken([](Sample& s) { s.vocabulary.bos = 1 << 20; }), "no error");  // ignored, as in llama.cpp
  EXPECT_EQ(broken([](Sample& s) { s.texts[200] = "\xFF\xFE"; }), "no error");
}

TEST(GgufTokenizer, RefusesAWordPieceVocabularyWithoutItsTokens) {
  const auto broken = [](auto change) {
    Sample s = word_piece({"▁a"});
    change(s.vocabulary);
    return error_of_gguf(std::move(s));
  };
  // The defaults are BERT's: 100, 101 and 102.
  EXPECT_NE(broken([](GgufVocabulary& v) { v.bos.reset(); }).find("tokenizer.ggml.bos_token_id"), std::string::npos);
  EXPECT_NE(broken([](GgufVocabulary& v) { v.sep.reset(); }).find("tokenizer.ggml.seperator_token_id"),
            std::string::npos);
  EXPECT_NE(broken([](GgufVocabulary& v) { v.unk.reset(); }).find("tokenizer.ggml.unknown_token_id"),
            std::string::npos);
  EXPECT_EQ(broken([](GgufVocabulary& v) { v.eos.reset(), v.pad.reset(), v.add_eos = true; }), "no error");
}

TEST(GgufTokenizer, AcceptsTokensThatAreNotUtf8) {
  Sample s = sentence_piece();
  s.add("a\xE2", 1, -1);
  s.add("\xE2\x82", 1, -1);
  s.add("\xFF\xFF\xFF", 4, -1);
  const Tokenizer t = s.make();
  EXPECT_EQ(t.decode(t.encode("a€ b")), "a€ b");
  EXPECT_FALSE(t.encode("a\xE2\xFF\xFF\xFF").empty());
}

}  // namespace
}  // namespace quire
