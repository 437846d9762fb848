#include "speculate/lookup/drafts.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TokenIds copy_of(std::span<const TokenId> tokens) { return {tokens.begin(), tokens.end()}; }

TEST(Drafts, KeepsDraftsInOrderWithTheirMatches) {
  Drafts drafts;
  drafts.start(3);
  drafts.push(7);
  drafts.push(8);
  drafts.start(1);
  drafts.push(9);
  ASSERT_EQ(drafts.size(), 2u);
  EXPECT_EQ(drafts[0].match, 3);
  EXPECT_EQ(copy_of(drafts[0].tokens), (TokenIds{7, 8}));
  EXPECT_EQ(drafts[1].match, 1);
  EXPECT_EQ(copy_of(drafts[1].tokens), (TokenIds{9}));
}

TEST(Drafts, KnowsTheFirstTokens) {
  Drafts drafts;
  EXPECT_FALSE(drafts.has_first(7));
  drafts.start(1);
  EXPECT_FALSE(drafts.has_first(7));
  drafts.push(7);
  drafts.push(8);
  EXPECT_TRUE(drafts.has_first(7));
  EXPECT_FALSE(drafts.has_first(8));
}

TEST(Drafts, IsEmptyAfterClear) {
  Drafts drafts;
  drafts.start(1);
  drafts.push(7);
  drafts.clear();
  EXPECT_TRUE(drafts.empty());
  EXPECT_FALSE(drafts.has_first(7));
}

}  // namespace
}  // namespace quire
