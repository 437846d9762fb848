#include "speculate/lookup/recent_outputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "unit/speculate/guess.h"

namespace quire {
namespace {

Guesses guesses(const AnswerRing& ring, std::string_view context, int depth, int breadth) {
  Drafts drafts;
  ring.draft(letters(context), depth, breadth, drafts);
  return guesses(drafts);
}

TEST(AnswerRing, DraftsWhatFollowedTheLongestMatchThenTheLatest) {
  AnswerRing ring(100, 2);
  ring.add(letters("one cat sat"));
  ring.add(letters("two cats ran"));
  EXPECT_EQ(guesses(ring, "one cat", 4, 1), (Guesses{{7, " sat"}}));
  EXPECT_EQ(guesses(ring, "a cat", 4, 1), (Guesses{{4, "s ra"}}));
  EXPECT_EQ(guesses(ring, "a cat", 4, 3), (Guesses{{4, "s ra"}, {4, " sat"}}));
}

TEST(AnswerRing, MatchesNothingBeforeTheFirstAnswer) {
  AnswerRing ring(100, 2);
  ring.add(TokenIds{5, 6, 7});
  Drafts drafts;
  ring.draft(TokenIds{0, 5, 6}, 1, 1, drafts);
  ASSERT_EQ(drafts.size(), 1u);
  EXPECT_EQ(drafts[0].match, 2);
}

TEST(AnswerRing, EndsDraftsWhereAnAnswerEnded) {
  AnswerRing ring(100, 2);
  ring.add(letters("abcd"));
  ring.add(letters("xyz"));
  EXPECT_EQ(guesses(ring, "ab", 9, 1), (Guesses{{2, "cd"}}));
  EXPECT_EQ(guesses(ring, "cd", 9, 1), Guesses{});
  EXPECT_EQ(guesses(ring, "dx", 9, 1), Guesses{});
}

TEST(AnswerRing, DraftsNothingWithoutAnswersContextDepthOrBreadth) {
  AnswerRing ring(100, 2);
  EXPECT_EQ(guesses(ring, "ab", 2, 2), Guesses{});
  ring.add({});
  ring.add(letters("a"));
  EXPECT_EQ(guesses(ring, "aa", 2, 2), Guesses{});
  ring.add(letters("abc"));
  EXPECT_EQ(guesses(ring, "", 2, 2), Guesses{});
  EXPECT_EQ(guesses(ring, "b", 2, 2), Guesses{});
  EXPECT_EQ(guesses(ring, "ab", 0, 2), Guesses{});
  EXPECT_EQ(guesses(ring, "ab", 2, 0), Guesses{});
  EXPECT_EQ(guesses(ring, "ab", 2, 2), (Guesses{{2, "c"}}));
}

TEST(AnswerRing, ForgetsTheOldestAnswersWhole) {
  AnswerRing ring(12, 2);
  ring.add(letters("abcd"));
  ring.add(letters("efgh"));
  EXPECT_EQ(ring.size(), 10u);
  ring.add(letters("ij"));  // 13 tokens with the ends
  EXPECT_EQ(ring.size(), 8u);
  EXPECT_EQ(guesses(ring, "ab", 2, 1), Guesses{});
  EXPECT_EQ(guesses(ring, "bc", 2, 1), Guesses{});
  EXPECT_EQ(guesses(ring, "ef", 2, 1), (Guesses{{2, "gh"}}));
}

TEST(AnswerRing, KeepsTheEndOfAnAnswerLongerThanTheLimit) {
  AnswerRing ring(6, 2);
  ring.add(letters("uv"));
  ring.add(letters("abcdefgh"));
  EXPECT_EQ(ring.size(), 6u);
  EXPECT_EQ(guesses(ring, "bc", 9, 1), Guesses{});
  EXPECT_EQ(guesses(ring, "de", 9, 1), (Guesses{{2, "fgh"}}));
}

// The answers that the ring must still hold, searched at every position.
class SlowRing {
 public:
  SlowRing(size_t limit, size_t min_match) : limit_(limit), min_match_(min_match) {}

  void add(const std::string& answer) {
    if (answer.empty()) return;
    answers_.push_back(answer.size() < limit_ ? answer : answer.substr(answer.size() + 1 - limit_));
    for (size_ += answers_.back().size() + 1; size_ > limit_; answers_.pop_front()) {
      size_ -= answers_.front().size() + 1;
    }
  }

  Guesses draft(const std::string& context, size_t depth, size_t breadth) const {
    Guesses all, found;
    for (auto answer = answers_.rbegin(); answer != answers_.rend(); ++answer) {
      for (size_t end = answer->size(); --end > 0;) {
        size_t length = 0;
        while (length < std::min(end, context.size()) &&
               (*answer)[end - 1 - length] == context[context.size() - 1 - length]) {
          ++length;
        }
        if (length >= min_match_) all.push_back(Guess{static_cast<int>(length), answer->substr(end, depth)});
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Guess& a, const Guess& b) { return a.match > b.match; });
    for (const Guess& guess : all) {
      const auto same = [&](const Guess& g) { return g.tokens[0] == guess.tokens[0]; };
      if (found.size() < breadth && std::none_of(found.begin(), found.end(), same)) found.push_back(guess);
    }
    return found;
  }

  size_t size() const { return size_; }

 private:
  size_t limit_, min_match_, size_ = 0;
  std::deque<std::string> answers_;
};

// Rings so short that all occurrences are compared.
TEST(AnswerRing, DraftsWhatASearchOfTheAnswersItHoldsFinds) {
  std::mt19937 random(9);
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const size_t limit = 2 + random() % 62, min_match = 1 + seed % 3, alphabet = 2 + random() % 3;
    const auto text = [&](size_t size) {
      std::string letters(size, ' ');
      for (char& c : letters) c = static_cast<char>('a' + random() % alphabet);
      return letters;
    };
    AnswerRing ring(limit, static_cast<int>(min_match));
    SlowRing slow(limit, min_match);
    for (int i = 0; i < 40; ++i) {
      const std::string answer = text(random() % 25), context = text(random() % 10);
      ring.add(letters(answer));
      slow.add(answer);
      ASSERT_EQ(ring.size(), slow.size());
      ASSERT_EQ(guesses(ring, context, 4, 3), slow.draft(context, 4, 3)) << "seed " << seed << " context " << context;
    }
  }
}

TEST(AnswerRing, NeverGrows) {
  const size_t limit = 10'000;
  AnswerRing ring(limit, 2);
  const size_t bytes = ring.bytes();
  EXPECT_LE(bytes, 28 * limit);
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    TokenIds answer(random() % 700);
    for (TokenId& token : answer) token = static_cast<TokenId>(random() % 5000);
    ring.add(answer);
    ASSERT_LE(ring.size(), limit);
    ASSERT_EQ(ring.bytes(), bytes);
  }
}

TEST(RecentOutputs, KeepsTenantsApart) {
  RecentOutputs outputs(100, 4, 2);
  outputs.add("ann", letters("abc"));
  outputs.add("ben", letters("abd"));
  Drafts drafts;
  outputs.draft("ann", letters("ab"), 2, 2, drafts);
  EXPECT_EQ(guesses(drafts), (Guesses{{2, "c"}}));
  outputs.draft("ben", letters("ab"), 2, 2, drafts);
  EXPECT_EQ(guesses(drafts), (Guesses{{2, "d"}}));
  outputs.draft("carl", letters("ab"), 2, 2, drafts);
  EXPECT_EQ(guesses(drafts), Guesses{});
}

TEST(RecentOutputs, ForgetsTheTenantUnusedForLongest) {
  RecentOutputs outputs(100, 2, 2);
  outputs.add("ann", letters("abc"));
  outputs.add("ben", letters("abd"));
  const size_t bytes = outputs.bytes();
  Drafts drafts;
  outputs.draft("ann", letters("ab"), 2, 2, drafts);
  outputs.add("carl", letters("abe"));
  EXPECT_EQ(outputs.tenants(), 2u);
  EXPECT_EQ(outputs.bytes(), bytes);
  outputs.draft("ben", letters("ab"), 2, 2, drafts);
  EXPECT_EQ(guesses(drafts), Guesses{});
  outputs.draft("ann", letters("ab"), 2, 2, drafts);
  EXPECT_EQ(guesses(drafts), (Guesses{{2, "c"}}));
}

}  // namespace
}  // namespace quire
