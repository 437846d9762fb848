#include "kv/page_key.h"

#include <gtest/gtest.h>

#include <array>
#include <unordered_set>

namespace quire {
namespace {

constexpr std::array<TokenId, 4> kTokens{1, 2, 3, 4};

TEST(PageKey, DependsOnTokensParentLayoutAndSalt) {
  const PageKey root = root_key("model", "salt"), key = chain(root, kTokens);
  EXPECT_EQ(chain(root_key("model", "salt"), kTokens), key);
  EXPECT_NE(chain(root_key("model2", "salt"), kTokens), key);
  EXPECT_NE(chain(root_key("model", ""), kTokens), key);
  EXPECT_NE(chain(key, kTokens), key);
  EXPECT_NE(chain(root, std::array<TokenId, 4>{1, 2, 4, 3}), key);
  EXPECT_NE(chain(root, std::span(kTokens).first(3)), key);
  EXPECT_NE(chain(root, {}), root);
}

TEST(PageKey, KeepsLayoutAndSaltApart) {
  EXPECT_NE(root_key("ab", "c"), root_key("a", "bc"));
  EXPECT_NE(root_key("abc", ""), root_key("", "abc"));
}

TEST(PageKey, IsTheSameInEveryVersionForFilesOutliveIt) {
  const PageKey root = root_key("model", "salt"), key = chain(root, kTokens);
  // What Python's xxhash says.
  EXPECT_EQ(root, (PageKey{0x278c4c712f9f7bc1, 0x8a3538a12faa809b}));
  EXPECT_EQ(key, (PageKey{0x8f99994a7f95041f, 0x7391dd9edfd228f3}));
}

TEST(PageKey, HasNoTwinAmongAHundredThousand) {
  std::unordered_set<PageKey, PageKeyHash> seen;
  PageKey key = root_key("model", "");
  for (TokenId t = 0; t < 100'000; ++t) seen.insert(key = chain(key, {&t, 1}));
  EXPECT_EQ(seen.size(), 100'000u);
}

}  // namespace
}  // namespace quire
