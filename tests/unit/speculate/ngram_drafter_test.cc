#include "speculate/lookup/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "unit/speculate/guess.h"

namespace quire {
namespace {

// Tokens are letters.
TokenIds letters(std::string_view text) { return {text.begin(), text.end()}; }

std::vector<Guess> guesses(std::string_view text, int depth, int breadth, int min_match = 1) {
  NgramDrafter drafter(min_match);
  drafter.append(letters(text));
  Drafts drafts;
  drafter.draft(depth, breadth, drafts);
  std::vector<Guess> found;
  for (size_t i = 0; i < drafts.size(); ++i) {
    found.push_back(Guess{drafts[i].match, {drafts[i].tokens.begin(), drafts[i].tokens.end()}});
  }
  return found;
}
using Guesses = std::vector<Guess>;

TEST(NgramDrafter, DraftsWhatFollowedTheLongestMatch) {
  EXPECT_EQ(guesses("the cat sat. a cat. the cat", 4, 1), (Guesses{{7, " sat"}}));
}

TEST(NgramDrafter, PrefersTheLatestOfMatchesOfTheSameLength) {
  EXPECT_EQ(guesses("xab1 xab2 yab", 1, 1), (Guesses{{2, "2"}}));
  EXPECT_EQ(guesses("xab1 xab2 yab", 1, 2), (Guesses{{2, "2"}, {2, "1"}}));
}

TEST(NgramDrafter, FallsBackToShorterSuffixesWithOtherFirstTokens) {
  EXPECT_EQ(guesses("ab1 cb1 db2 ab", 2, 4), (Guesses{{2, "1 "}, {1, "2 "}}));
}

TEST(NgramDrafter, ContinuesPeriodicallyBeyondTheEnd) {
  EXPECT_EQ(guesses("abab", 7, 1), (Guesses{{2, "abababa"}}));
  EXPECT_EQ(guesses("xaaa", 3, 1), (Guesses{{2, "aaa"}}));
  EXPECT_EQ(guesses("-abc-abc", 6, 1), (Guesses{{4, "-abc-a"}}));
}

TEST(NgramDrafter, DraftsNothingBelowTheShortestMatch) {
  EXPECT_EQ(guesses("ab cb", 2, 1, 1), (Guesses{{1, " c"}}));
  EXPECT_EQ(guesses("ab cb", 2, 1, 2), Guesses{});
  EXPECT_EQ(guesses("ab c b", 2, 1, 2), Guesses{});
  EXPECT_EQ(guesses("abc ab", 2, 3, 2), (Guesses{{2, "c "}}));
}

TEST(NgramDrafter, DraftsNothingWithoutTextDepthOrBreadth) {
  EXPECT_EQ(guesses("", 3, 3), Guesses{});
  EXPECT_EQ(guesses("a", 3, 3), Guesses{});
  EXPECT_EQ(guesses("aaa", 0, 3), Guesses{});
  EXPECT_EQ(guesses("aaa", 3, 0), Guesses{});
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
