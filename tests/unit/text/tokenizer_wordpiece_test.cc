#include <gtest/gtest.h>

#include <string>

#include "gguf_samples.h"
#include "text/tokenizer/data.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

constexpr TokenId kUnk = 1, kCls = 2, kSep = 3;

TEST(WordPiece, TakesTheLongestTokensFromTheLeft) {
  const Tokenizer t = tokenizer_of(word_piece_json({"a", "ab", "##b", "##bc", "##c", "abcd"}));
  EXPECT_EQ(t.encode("ab"), (TokenIds{5}));
  EXPECT_EQ(t.encode("abc"), (TokenIds{5, 8}));
  EXPECT_EQ(t.encode("abcd"), (TokenIds{9}));
  EXPECT_EQ(t.encode("abbc"), (TokenIds{5, 7}));
  EXPECT_EQ(t.encode("a b"), (TokenIds{4, kUnk})) << "##b does not begin a word";
  EXPECT_EQ(t.encode("abca"), TokenIds{kUnk}) << "a does not continue a word, and the whole word becomes unknown";
  EXPECT_EQ(t.encode("a", {.add_special = true}), (TokenIds{kCls, 4, kSep}));
  EXPECT_EQ(t.encode("", {.add_special = true}), (TokenIds{kCls, kSep}));
  EXPECT_EQ(t.encode("a[SEP]a"), (TokenIds{4, kSep, 4}));
  EXPECT_EQ(t.unk(), kUnk);
  EXPECT_EQ(t.kind(kUnk), TokenKind::kUnknown);
  EXPECT_EQ(t.data().model_kind(), "WordPiece");
}

TEST(WordPiece, CountsTheLimitOfAWordInCharacters) {
  const Tokenizer t = tokenizer_of(word_piece_json({"é", "##é", "e", "##e", "жжжжжж"}));
  EXPECT_EQ(t.encode("жжжжжж"), TokenIds{8});
  EXPECT_EQ(t.encode("eeeeee"), (TokenIds{6, 7, 7, 7, 7, 7}));
  EXPECT_EQ(t.encode("eeeeeee"), TokenIds{kUnk});
  EXPECT_EQ(t.encode("éééééé"), t.encode("eeeeee")) << "accents are removed first";
  EXPECT_EQ(t.encode("eeeeeee-e"), (TokenIds{kUnk, kUnk, 6})) << "only the word is unknown";
}

TEST(WordPiece, NeedsNoTokenThatContinuesAWord) {
  const Tokenizer t = tokenizer_of(word_piece_json({"a"}));
  EXPECT_EQ(t.encode("a aa"), (TokenIds{4, kUnk}));
  nlohmann::json json = word_piece_json({"a"});
  json["model"]["continuing_subword_prefix"] = "";
  EXPECT_EQ(tokenizer_of(json).encode("a aa"), (TokenIds{4, 4, 4})) << "without a mark all tokens continue words";
  json["model"]["max_input_chars_per_word"] = 0;
  EXPECT_EQ(tokenizer_of(json).encode("a"), TokenIds{kUnk});
}

TEST(WordPiece, IsReadFromAnOldFileWithoutAType) {
  nlohmann::json json = word_piece_json({"a", "##b"});
  json["model"].erase("type");
  EXPECT_EQ(tokenizer_of(json).encode("ab"), (TokenIds{4, 5}));
}

TEST(WordPiece, ReadsIllFormedTextAsNothing) {
  const Tokenizer json = tokenizer_of(word_piece_json({"a", "##a"}));
  EXPECT_EQ(json.encode("a\xFF"
                        "a\xE2\x82 a\xF0"),
            (TokenIds{4, 5, 4}));
  const Tokenizer gguf = word_piece({"▁a", "a"}).make();
  EXPECT_EQ(gguf.encode("a\xFF"
                        "a\xE2\x82 a\xF0"),
            (TokenIds{4, 5, 4}));
}

TEST(WordPiece, DecodesWithSpacesBetweenWords) {
  const Tokenizer t = tokenizer_of(word_piece_json({"do", "##ing", "n't", "!", "'", "s"}));
  EXPECT_EQ(t.decode(TokenIds{4, 5, 4, 6, 7}), "doing don't!");
  EXPECT_EQ(t.decode(TokenIds{5, 5}), "##inging") << "the first token keeps its mark, as in the library";
  EXPECT_EQ(t.decode(TokenIds{kCls, 4, 5, kSep}, {.skip_special = true}), "doing");
  EXPECT_EQ(t.decode(TokenIds{kCls, 4, kSep}), "[CLS] do [SEP]");
  EXPECT_EQ(t.decode(TokenIds{4}, {.continues = true}), " do");
  EXPECT_EQ(t.token_bytes(5), "ing");
  nlohmann::json plain = word_piece_json({"do", "##ing", "!"});
  plain["decoder"]["cleanup"] = false;
  EXPECT_EQ(tokenizer_of(plain).decode(TokenIds{4, 6}), "do !");
}

TEST(WordPiece, OfAGgufFileMarksTheTokensThatBeginAWord) {
  Sample s = word_piece({"▁a", "a", "▁ab", "b", "▁!", "▁"});
  const Tokenizer t = s.make();
  EXPECT_EQ(t.encode("ab a aab"), (TokenIds{6, 4, 4, 5, 7}));
  EXPECT_EQ(t.encode("ba"), (TokenIds{9, 7, 5})) << "▁ is a token of its own";
  EXPECT_EQ(t.encode("Áb!c"), (TokenIds{6, 8, kUnk}));
  EXPECT_EQ(t.encode("a", {.add_special = true}), (TokenIds{kCls, 4, kSep}));
  EXPECT_EQ(t.encode("", {.add_special = true}), (TokenIds{kCls, kSep}));
  EXPECT_EQ(t.encode(std::string(5000, 'a')).size(), 5000u) << "words have no limit";
  EXPECT_EQ(t.decode(TokenIds{6, 7, 8}), " abb !");
}

TEST(WordPiece, OfAGgufFileKeepsCaseAndAccentsOnRequest) {
  Sample s = word_piece({"▁a", "▁A", "▁á", "▁Á", "▁ᄒ"});
  const auto encode = [&](std::optional<bool> lowercase, std::optional<bool> strip_accents) {
    s.vocabulary.lowercase = lowercase;
    s.vocabulary.strip_accents = strip_accents;
    return s.make().encode("Á A");
  };
  EXPECT_EQ(encode({}, {}), (TokenIds{4, 4}));
  EXPECT_EQ(encode(false, {}), (TokenIds{7, 5})) << "accents go only with case";
  EXPECT_EQ(encode(true, false), (TokenIds{6, 4}));
  EXPECT_EQ(encode(false, true), (TokenIds{5, 5}));
  s.vocabulary.lowercase = s.vocabulary.strip_accents = std::nullopt;
  EXPECT_EQ(s.make().encode("한"), TokenIds{8}) << "of a decomposition the first character stays, as in llama.cpp";
}

}  // namespace
}  // namespace quire
