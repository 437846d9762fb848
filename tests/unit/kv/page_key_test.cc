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
  EXPECT_NE(chain(root_key("model", "tenant", "salt", 1), kTokens), key) << "another rope";
  EXPECT_NE(chain(root_key("model", "tenant", "salt", 0, "adapter"), kTokens), key);
  EXPECT_NE(root_key("model", "tenant", "salt", 0, "a"), root_key("model", "tenant", "salt", 0, "b"));
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

TEST(PageKey, SeparatesWhatAPageKeeps) {
  const PageKey page = root_key("model", "tenant", "salt");
  EXPECT_EQ(unit_key(page, 0), page);
  EXPECT_NE(unit_key(page, 1), unit_key(page, 2));
  EXPECT_NE(unit_key(page, 1), checkpoint_key(page, 1));
  EXPECT_NE(checkpoint_key(page, 0), checkpoint_key(page, 1));
}

TEST(PageKey, IsTheSameInEveryVersionBecauseFilesOutliveIt) {
  const PageKey root = root_key("model", "tenant", "salt"), key = chain(root, kTokens);
  // Computed with Python's xxhash.
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
