#include <gtest/gtest.h>

#include <random>

#include "text/detokenizer.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

std::vector<std::string> pieces(const Tokenizer& tokenizer, const TokenIds& ids, DecodeOptions options = {}) {
  Detokenizer detokenizer(tokenizer, options);
  std::vector<std::string> result;
  for (TokenId id : ids) result.push_back(detokenizer.push(id));
  result.push_back(detokenizer.finish());
  return result;
}
using Pieces = std::vector<std::string>;

TEST(Detokenizer, HoldsBackHalfACharacter) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  EXPECT_EQ(pieces(t, {0xF0, 0x9F, 0xA6, 0x99, 'x'}), (Pieces{"", "", "", "🦙", "x", ""}));
}

TEST(Detokenizer, ReplacesBytesThatCannotBecomeACharacter) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  EXPECT_EQ(pieces(t, {0xE2, 0x82, 'a'}), (Pieces{"", "", "\uFFFDa", ""}));  // one ill-formed part of two bytes
  EXPECT_EQ(pieces(t, {0xE0, 0x80}), (Pieces{"", "\uFFFD\uFFFD", ""}));      // overlong: two parts
  EXPECT_EQ(pieces(t, {0xED, 0xA0, 0x80}), (Pieces{"", "\uFFFD\uFFFD", "\uFFFD", ""}));  // a surrogate
  EXPECT_EQ(pieces(t, {0xFF, 0x80}), (Pieces{"\uFFFD", "\uFFFD", ""}));
  EXPECT_EQ(pieces(t, {0xF0, 0x9F}), (Pieces{"", "", "\uFFFD"}));  // the text ends inside a character
  EXPECT_EQ(pieces(t, {0xF0, 0xF0, 0x9F, 0xA6, 0x99}), (Pieces{"", "\uFFFD", "", "", "🦙", ""}));
}

TEST(Detokenizer, StartsANewTextAfterFinish) {
  const Tokenizer t = tokenizer_of(byte_fallback_json({"▁", "a", "▁a"}, {"▁ a"}));
  const TokenId a = *t.find("▁a");
  Detokenizer d(t);
  EXPECT_EQ(d.push(a), "a");
  EXPECT_EQ(d.push(a), " a");
  EXPECT_EQ(d.finish(), "");
  EXPECT_EQ(d.push(a), "a");
}

TEST(Detokenizer, KeepsTheLeadingSpaceOfAContinuedText) {
  const Tokenizer t = tokenizer_of(byte_fallback_json({"▁", "a", "▁a"}, {"▁ a"}));
  EXPECT_EQ(pieces(t, {*t.find("▁a")}, {.continues = true}), (Pieces{" a", ""}));
}

TEST(Detokenizer, StripsOnceEvenIfSpacesAreByteTokens) {
  const Tokenizer t = tokenizer_of(byte_fallback_json({"▁", "a", "▁a"}, {"▁ a"}));
  EXPECT_EQ(pieces(t, {2 + 0x20, 2 + 0x20, *t.find("a")}), (Pieces{"", " ", "a", ""}));
}

TEST(Detokenizer, FramesAddedTokensOnRequest) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  const TokenId end = *t.find("<|end|>");
  EXPECT_EQ(pieces(t, {'a', end, 'b'}, {.frame_added = true}), (Pieces{"a", "\xff<|end|>\xfe", "b", ""}));
  // As without the token, if it is to be left out.
  EXPECT_EQ(pieces(t, {0xC3, end, 0xA9}, {.skip_special = true, .frame_added = true}),
            (Pieces{"", "\xff<|end|>\xfe", "é", ""}));
  EXPECT_EQ(pieces(t, {0xC3, end, 0xA9}, {.frame_added = true}), (Pieces{"", "\uFFFD\xff<|end|>\xfe", "\uFFFD", ""}));
}

TEST(Detokenizer, OmitsSpecialTokensOnRequest) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  const TokenId end = *t.find("<|end|>");
  EXPECT_EQ(pieces(t, {'a', end, 'b'}), (Pieces{"a", "<|end|>", "b", ""}));
  EXPECT_EQ(pieces(t, {'a', end, 'b'}, {.skip_special = true}), (Pieces{"a", "", "b", ""}));
  // A character may continue after an omitted token, but not after a shown one.
  EXPECT_EQ(pieces(t, {0xC3, end, 0xA9}, {.skip_special = true}), (Pieces{"", "", "é", ""}));
  EXPECT_EQ(pieces(t, {0xC3, end, 0xA9}), (Pieces{"", "\uFFFD<|end|>", "\uFFFD", ""}));
}

TEST(Detokenizer, SkipsIdsOutsideTheVocabulary) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  EXPECT_EQ(t.decode(TokenIds{-1, 'a', 1 << 30, 'b'}), "ab");
}

TEST(Detokenizer, EqualsDecodeForRandomIds) {
  std::mt19937 random(7);
  for (const Tokenizer& t :
       {tokenizer_of(byte_level_json()), tokenizer_of(byte_fallback_json({"▁", "a", "▁a", "é"}, {"▁ a"}))}) {
    for (int round = 0; round < 2000; ++round) {
      TokenIds ids(random() % 12);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % static_cast<unsigned>(t.vocab_size()));
      std::string joined;
      for (const std::string& piece : pieces(t, ids)) joined += piece;
      ASSERT_EQ(joined, t.decode(ids)) << ::testing::PrintToString(ids);
    }
  }
}

TEST(Detokenizer, DropsOrJoinsAsTheDecoderRequires) {
  nlohmann::json json = byte_fallback_json({"▁a", "▁b"}, {});
  json["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  const Tokenizer metaspace = tokenizer_of(json);
  EXPECT_EQ(metaspace.decode(TokenIds{258, 259, 258}), "a b a");
  json["decoder"] = nullptr;
  EXPECT_EQ(tokenizer_of(json).decode(TokenIds{258, 259}), "▁a ▁b");
}

}  // namespace
}  // namespace quire
