#include "kv/page_key.h"

#include <gtest/gtest.h>

#include <array>
#include <unordered_set>

namespace quire {
namespace {

constexpr std::array<TokenId, 4> kTokens{1, 2, 3, 4};

TEST(PageKey, DependsOnTokensParentLayoutTenantAndSalt) {
  const PageKey root = root_key("model", "tenant", "salt"), key = chain(root, kTokens);
  EXPECT_EQ(chain(root_key("model", "tenant", "salt"), kTokens), key);
  EXPECT_NE(chain(root_key("model2", "tenant", "salt"), kTokens), key);
  EXPECT_NE(chain(root_key("model", "other", "salt"), kTokens), key);
  EXPECT_NE(chain(root_key("model", "tenant", ""), kTokens), key);
  EXPECT_NE(chain(key, kTokens), key);
  EXPECT_NE(chain(root, std::array<TokenId, 4>{1, 2, 4, 3}), key);
  EXPECT_NE(chain(root, std::span(kTokens).first(3)), key);
  EXPECT_NE(chain(root, {}), root);
}

TEST(PageKey, SeparatesLayoutTenantAndSalt) {
  EXPECT_NE(root_key("ab", "c", ""), root_key("a", "bc", ""));
  EXPECT_NE(root_key("abc", "", ""), root_key("", "abc", ""));
  EXPECT_NE(root_key("a", "bc", ""), root_key("a", "b", "c"));
  EXPECT_NE(root_key("a", "b", ""), root_key("a", "", "b"));
}

TEST(PageKey, IsTheSameInEveryVersionBecauseFilesOutliveIt) {
  const PageKey root = root_key("model", "tenant", "salt"), key = chain(root, kTokens);
  // What Python's xxhash says.
  EXPECT_EQ(root, (PageKey{0x09e810ff36812b60, 0xa147a6c9812f9d21}));
  EXPECT_EQ(key, (PageKey{0xcf1bb5d513f02985, 0xd1dd9a486c88f239}));
}

TEST(PageKey, HasNoCollisionAmongAHundredThousand) {
  std::unordered_set<PageKey, PageKeyHash> seen;
  PageKey key = root_key("model", "", "");
  for (TokenId t = 0; t < 100'000; ++t) seen.insert(key = chain(key, {&t, 1}));
  EXPECT_EQ(seen.size(), 100'000u);
}

}  // namespace
}  // namespace quire
