#include "speculate/lookup/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "unit/speculate/guess.h"

namespace quire {
namespace {

Guesses ngram_guesses(std::string_view text, int depth, int breadth, int min_match = 1) {
  NgramDrafter drafter(min_match);
  drafter.append(letters(text));
  Drafts drafts;
  drafter.draft(depth, breadth, drafts);
  return guesses(drafts);
}

TEST(NgramDrafter, DraftsWhatFollowedTheLongestMatch) {
  EXPECT_EQ(ngram_guesses("the cat sat. a cat. the cat", 4, 1), (Guesses{{7, " sat"}}));
}

TEST(NgramDrafter, PrefersTheLatestOfMatchesOfTheSameLength) {
  EXPECT_EQ(ngram_guesses("xab1 xab2 yab", 1, 1), (Guesses{{2, "2"}}));
  EXPECT_EQ(ngram_guesses("xab1 xab2 yab", 1, 2), (Guesses{{2, "2"}, {2, "1"}}));
}

TEST(NgramDrafter, FallsBackToShorterSuffixesWithOtherFirstTokens) {
  EXPECT_EQ(ngram_guesses("ab1 cb1 db2 ab", 2, 4), (Guesses{{2, "1 "}, {1, "2 "}}));
}

TEST(NgramDrafter, ContinuesPeriodicallyBeyondTheEnd) {
  EXPECT_EQ(ngram_guesses("abab", 7, 1), (Guesses{{2, "abababa"}}));
  EXPECT_EQ(ngram_guesses("xaaa", 3, 1), (Guesses{{2, "aaa"}}));
  EXPECT_EQ(ngram_guesses("-abc-abc", 6, 1), (Guesses{{4, "-abc-a"}}));
}

TEST(NgramDrafter, DraftsNothingBelowTheShortestMatch) {
  EXPECT_EQ(ngram_guesses("ab cb", 2, 1, 1), (Guesses{{1, " c"}}));
  EXPECT_EQ(ngram_guesses("ab cb", 2, 1, 2), Guesses{});
  EXPECT_EQ(ngram_guesses("ab c b", 2, 1, 2), Guesses{});
  EXPECT_EQ(ngram_guesses("abc ab", 2, 3, 2), (Guesses{{2, "c "}}));
}

TEST(NgramDrafter, DraftsNothingWithoutTextDepthOrBreadth) {
  EXPECT_EQ(ngram_guesses("", 3, 3), Guesses{});
  EXPECT_EQ(ngram_guesses("a", 3, 3), Guesses{});
  EXPECT_EQ(ngram_guesses("aaa", 0, 3), Guesses{});
  EXPECT_EQ(ngram_guesses("aaa", 3, 0), Guesses{});
}

TEST(NgramDrafter, ReplacesEarlierDrafts) {
  NgramDrafter drafter;
  Drafts drafts;
  drafter.append(letters("abab"));
  drafter.draft(2, 1, drafts);
  drafter.append(letters("z"));
  drafter.draft(2, 1, drafts);
  EXPECT_TRUE(drafts.empty());
}

TEST(NgramDrafter, DraftsTheSameHoweverTheTextArrived) {
  std::mt19937 random(5);
  TokenIds text(2000);
  for (TokenId& token : text) token = static_cast<TokenId>(random() % 5);
  NgramDrafter whole(1), parts(1);
  parts.reserve(text.size());
  whole.append(text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t size = std::min<size_t>(random() % 9, text.size() - begin);
    parts.append(std::span(text).subspan(begin, size));
    begin += size;
  }
  Drafts a, b;
  whole.draft(8, 5, a);
  parts.draft(8, 5, b);
  ASSERT_EQ(a.size(), 5u);
  ASSERT_EQ(b.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a[i].match, b[i].match);
    EXPECT_TRUE(std::equal(a[i].tokens.begin(), a[i].tokens.end(), b[i].tokens.begin(), b[i].tokens.end()));
  }
}

}  // namespace
}  // namespace quire
