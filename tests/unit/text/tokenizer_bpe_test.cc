#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "tokenizer_samples.h"

namespace quire {
namespace {

// The definition: merge the best pair, the leftmost of equals, until none is left.
std::vector<int32_t> merged_naively(const MergeTable& table, std::vector<int32_t> ids) {
  while (true) {
    size_t best = ids.size();
    MergeTable::Merge found{};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Merge* m = table.find(ids[i], ids[i + 1]);
      if (m && (best == ids.size() || m->rank < found.rank)) best = i, found = *m;
    }
    if (best == ids.size()) return ids;
    ids[best] = found.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerge, EqualsItsDefinitionForShortAndLongWords) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    MergeTable table;
    const int symbols = 3 + static_cast<int>(random() % 4);
    int next = symbols;
    for (int i = 0; i < 20; ++i, ++next) {
      // Every other round has equal ranks, as with SentencePiece scores.
      const auto rank = static_cast<uint32_t>(round % 2 ? i : i / 3);
      table.set(static_cast<int32_t>(random() % static_cast<unsigned>(next)),
                static_cast<int32_t>(random() % static_cast<unsigned>(next)), {rank, next}, true);
    }
    std::vector<int32_t> ids(random() % 120);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<unsigned>(symbols));
    const std::vector<int32_t> expected = merged_naively(table, ids);
    BpeScratch scratch;
    bpe_merge(table, ids, scratch);
    ASSERT_EQ(ids, expected) << "round " << round;
  }
}

// Counts steps, not seconds: a quadratic merge of 2^16 symbols would take billions.
TEST(BpeMerge, TakesAFewStepsPerSymbol) {
  MergeTable doubling;  // a+a=b, b+b=c, …: everything merges
  for (int i = 0; i < 16; ++i) doubling.set(i, i, {static_cast<uint32_t>(i), i + 1}, true);
  MergeTable chain;  // one token grows to the right: (n, a) = n+1
  for (int i = 0; i < 1000; ++i) chain.set(i, 0, {static_cast<uint32_t>(i), i + 1}, true);
  for (const MergeTable* table : {&doubling, &chain}) {
    for (size_t n : {size_t{1} << 10, size_t{1} << 16}) {
      std::vector<int32_t> ids(n, 0);
      BpeScratch scratch;
      bpe_merge(*table, ids, scratch);
      EXPECT_LE(scratch.operations, 8 * n);
      EXPECT_LT(ids.size(), n);
    }
  }
}

TEST(BpeModel, CutsOnlyBetweenCharactersThatNeverJoin) {
  const Tokenizer t = tokenizer_of(byte_fallback_json({"▁", "a", "b", "▁a", "ab", "▁ab"}, {"a b", "▁ a", "▁ ab"}));
  const TokenIds ids = t.encode("ab ab  ba");
  EXPECT_EQ(ids, (TokenIds{*t.find("ab"), *t.find("▁ab"), *t.find("▁"), *t.find("▁"), *t.find("b"), *t.find("a")}));
}

TEST(BpeModel, FallsBackToBytesAndThenToUnknown) {
  nlohmann::json json = byte_fallback_json({"a"}, {});
  EXPECT_EQ(tokenizer_of(json).encode("aé"), (TokenIds{258, 2 + 0xC3, 2 + 0xA9}));
  json["model"]["vocab"].erase("<0xC3>");
  EXPECT_EQ(tokenizer_of(json).encode("aééaé"), (TokenIds{258, 0, 258, 0}));  // fused
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(tokenizer_of(json).encode("aéé"), (TokenIds{258, 0, 0}));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(tokenizer_of(json).encode("aéa"), (TokenIds{258, 258}));  // without an unknown token
}

TEST(BpeModel, PrefersAWholeWordIfMergesAreIgnored) {
  nlohmann::json json = byte_level_json({"a b", "b c", "ab c"});
  json["model"]["vocab"]["bcd"] = 400;
  EXPECT_EQ(tokenizer_of(json).encode("bcd"), (TokenIds{257, 'd'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(json).encode("bcd"), (TokenIds{400}));
  EXPECT_EQ(tokenizer_of(json).encode(" bcd"), (TokenIds{' ', 257, 'd'}));
}

TEST(BpeModel, AppliesPrefixAndSuffixOfWords) {
  const nlohmann::json json = {{"model",
                                {{"type", "BPE"},
                                 {"continuing_subword_prefix", "##"},
                                 {"end_of_word_suffix", "</w>"},
                                 {"vocab", {{"a", 0}, {"##b", 1}, {"##c</w>", 2}, {"ab", 3}, {"abc</w>", 4}}},
                                 {"merges", {"a ##b", "ab ##c</w>"}}}}};
  EXPECT_EQ(tokenizer_of(json).encode("abc"), (TokenIds{4}));
}

TEST(Tokenizer, EncodesARepeatedWordFromItsCacheTheSame) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  const TokenIds once = t.encode(" hello world");
  std::string text;
  TokenIds expected;
  for (int i = 0; i < 500; ++i) {
    text += " hello world";
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(t.encode(text), expected);
  EXPECT_EQ(t.decode(expected), text);
}

TEST(Tokenizer, RefusesWordsThatNeedTooMuchMemory) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  const std::string longest(size_t{1} << 20, 'l');
  EXPECT_EQ(t.encode(longest).size(), longest.size() / 2);
  EXPECT_EQ(t.encode(longest + "." + longest).size(), longest.size() + 1);
  EXPECT_THROW(t.encode(longest + "l"), Error);
}

TEST(Tokenizer, ReadsIllFormedTextAsReplacementCharacters) {
  const Tokenizer t = tokenizer_of(byte_level_json());
  EXPECT_EQ(t.encode("a\xFF\xE2\x82"), t.encode("a\uFFFD\uFFFD"));
}

}  // namespace
}  // namespace quire
