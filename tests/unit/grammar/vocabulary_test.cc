#include "grammar/vocabulary.h"

#include <gtest/gtest.h>

namespace quire::grammar {
namespace {

const std::vector<std::string_view> kTexts = {"a", "ab", "abc", "b", "", "ab", "\"", "<s>", "\xC3\xA9", "\xC3", "x y"};

std::shared_ptr<const Vocabulary> small() {
  const SpecialToken special[] = {{7, "<s>"}};
  const TokenId end[] = {4};
  return Vocabulary::build(kTexts, special, end);
}

TEST(Vocabulary, TrieHoldsEachTextOnceInDepthFirstOrder) {
  const auto vocabulary = small();
  std::vector<std::string> texts;
  std::string path;
  const Trie& trie = vocabulary->trie();
  for (size_t i = 0; i < trie.size(); ++i) {
    path.resize(trie[i].depth - 1u);
    path += static_cast<char>(trie[i].byte);
    EXPECT_GT(trie[i].end, i);
    if (trie[i].token != kNoToken) {
      texts.push_back(path);
      EXPECT_EQ(vocabulary->bytes(trie[i].token), path);
    }
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"\"", "a", "ab", "abc", "b", "x y", "\xC3", "\xC3\xA9"}));
}

TEST(Vocabulary, ChainsTokensWithTheSameBytes) {
  const auto vocabulary = small();
  EXPECT_EQ(vocabulary->twin(1), 5);
  EXPECT_EQ(vocabulary->twin(5), kNoToken);
  EXPECT_EQ(vocabulary->twin(0), kNoToken);
}

TEST(Vocabulary, SpecialAndEndTokensAreNotText) {
  const auto vocabulary = small();
  EXPECT_EQ(vocabulary->find_special("<s>"), 7);
  EXPECT_EQ(vocabulary->find_special("ab"), std::nullopt);
  EXPECT_TRUE(vocabulary->is_special(7));
  EXPECT_TRUE(vocabulary->is_special(4));
  EXPECT_EQ(vocabulary->bytes(7), "");
}

TEST(Vocabulary, SlicesDividePlainTokensFromTheOthers) {
  const auto vocabulary = small();
  for (const Vocabulary::Slice& slice : vocabulary->slices()) {
    std::vector<bool> seen(vocabulary->size());
    for (size_t id = 0; id < vocabulary->size(); ++id) seen[id] = slice.mask[id / 32] >> (id % 32) & 1;
    EXPECT_FALSE(seen[6]) << "a quote is not plain";
    EXPECT_FALSE(seen[9]) << "part of a character is not plain";
    EXPECT_TRUE(seen[0] && seen[1] && seen[5] && seen[8]);
    for (const TrieNode& node : slice.others) {
      if (node.token == kNoToken) continue;
      EXPECT_FALSE(seen[static_cast<size_t>(node.token)]);
    }
  }
  ASSERT_FALSE(vocabulary->slices().empty());
  EXPECT_EQ(vocabulary->slices().back().max_characters, 3u);
}

TEST(Vocabulary, OfBytesHasOneTokenForEach) {
  const auto vocabulary = Vocabulary::of_bytes();
  EXPECT_EQ(vocabulary->size(), 257u);
  EXPECT_EQ(vocabulary->trie().size(), 256u);
  EXPECT_EQ(vocabulary->end_tokens()[0], 256);
}

TEST(Vocabulary, MayBeEmpty) {
  const auto vocabulary = Vocabulary::build({}, {}, {});
  EXPECT_EQ(vocabulary->size(), 0u);
  EXPECT_TRUE(vocabulary->trie().empty());
}

}  // namespace
}  // namespace quire::grammar
