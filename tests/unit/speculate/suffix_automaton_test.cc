#include "speculate/lookup/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <random>

namespace quire {

static void PrintTo(const SuffixAutomaton::Match& match, std::ostream* out) {
  *out << match.length << " tokens before " << match.end;
}

namespace {

using Match = SuffixAutomaton::Match;

TokenIds random_text(size_t size, TokenId alphabet, uint32_t seed) {
  std::mt19937 random(seed);
  TokenIds text(size);
  for (TokenId& token : text) token = static_cast<TokenId>(random() % static_cast<uint32_t>(alphabet));
  return text;
}

// The number of tokens before `end` that are also the last tokens of the text.
size_t common(std::span<const TokenId> text, size_t end) {
  size_t length = 0;
  while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
  return length;
}

// What matches() promises, by comparing every position.
std::vector<Match> slow_matches(std::span<const TokenId> text, size_t min_length, size_t most) {
  std::vector<Match> all, found;
  for (size_t end = text.size(); end-- > 1;) {
    if (const size_t length = common(text, end); length >= min_length) all.push_back({length, end});
  }
  std::stable_sort(all.begin(), all.end(), [](const Match& a, const Match& b) { return a.length > b.length; });
  for (const Match& match : all) {
    const bool known =
        std::any_of(found.begin(), found.end(), [&](const Match& m) { return text[m.end] == text[match.end]; });
    if (!known && found.size() < most) found.push_back(match);
  }
  return found;
}

TEST(SuffixAutomaton, FindsNothingInTextsWithoutRepetition) {
  SuffixAutomaton automaton;
  std::vector<Match> found{{1, 1}};
  EXPECT_EQ(automaton.longest(), (Match{0, 0}));
  automaton.matches(1, 4, found);
  EXPECT_TRUE(found.empty());
  for (TokenId token = 0; token < 100; ++token) {
    automaton.append(token);
    EXPECT_EQ(automaton.longest(), (Match{0, 0}));
    automaton.matches(1, 4, found);
    EXPECT_TRUE(found.empty());
  }
}

TEST(SuffixAutomaton, FindsTheLongestSuffixAtItsLatestEarlierOccurrence) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const TokenId alphabet = 2 + static_cast<TokenId>(seed % 4);
    const TokenIds text = random_text(200, alphabet, seed);
    SuffixAutomaton automaton;
    for (size_t size = 1; size <= text.size(); ++size) {
      automaton.append(text[size - 1]);
      const auto expected = slow_matches(std::span(text).first(size), 1, 1);
      ASSERT_EQ(automaton.longest(), expected.empty() ? Match{} : expected[0]) << "seed " << seed << " size " << size;
    }
  }
}

TEST(SuffixAutomaton, FindsMatchesWithDifferentContinuationsLongestThenLatest) {
  std::vector<Match> found;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const TokenId alphabet = 2 + static_cast<TokenId>(seed % 7);
    const size_t min_length = 1 + seed % 3, most = 1 + seed % 5;
    const TokenIds text = random_text(150, alphabet, seed);
    SuffixAutomaton automaton;
    for (size_t size = 1; size <= text.size(); ++size) {
      automaton.append(text[size - 1]);
      automaton.matches(min_length, most, found);
      ASSERT_EQ(found, slow_matches(std::span(text).first(size), min_length, most))
          << "seed " << seed << " size " << size;
    }
  }
}

TEST(SuffixAutomaton, FindsRepetitionsOfRandomPhrases) {
  std::mt19937 random(7);
  TokenIds text;
  SuffixAutomaton automaton;
  const TokenIds phrases = random_text(300, 1000, 7);
  for (int i = 0; i < 40; ++i) {
    const size_t begin = random() % 250, size = 1 + random() % 50;
    for (size_t j = begin; j < begin + size; ++j) {
      text.push_back(phrases[j]);
      automaton.append(phrases[j]);
      const auto expected = slow_matches(text, 1, 1);
      ASSERT_EQ(automaton.longest(), expected.empty() ? Match{} : expected[0]) << "size " << text.size();
    }
  }
}

TEST(SuffixAutomaton, FindsTheOverlappingOccurrenceInARun) {
  SuffixAutomaton automaton;
  for (size_t size = 1; size <= 1000; ++size) {
    automaton.append(5);
    EXPECT_EQ(automaton.longest(), (Match{size - 1, size - 1}));
  }
}

// In runs, occurrences of the shorter suffixes need not be the latest, but must be occurrences.
TEST(SuffixAutomaton, FindsTrueOccurrencesAmongLongRuns) {
  SuffixAutomaton automaton;
  TokenIds text;
  std::mt19937 random(3);
  std::vector<Match> found;
  for (int i = 0; i < 40; ++i) {
    text.insert(text.end(), random() % 300, 0);
    text.insert(text.end(), 1 + random() % 3, 1);
  }
  for (size_t size = 1; size <= text.size(); ++size) {
    automaton.append(text[size - 1]);
    if (size % 17 != 0) continue;
    automaton.matches(1, 2, found);
    const auto so_far = std::span<const TokenId>(text).first(size);
    ASSERT_EQ(found.empty() ? 0 : found[0].length, slow_matches(so_far, 1, 1)[0].length);
    for (const Match& match : found) {
      ASSERT_LT(match.end, size);
      ASSERT_GE(common(so_far, match.end), match.length);
    }
  }
}

TEST(SuffixAutomaton, NeedsAtMost84BytesATokenWhenReserved) {
  const size_t size = 100'000;
  // Of short binary texts, and of "abbb…bc", which need the most states and edges.
  TokenIds worst(size, 1);
  worst.front() = 0;
  worst.back() = 2;
  for (const TokenIds& text : {random_text(size, 2, 1), random_text(size, 50'000, 2), TokenIds(size, 3), worst}) {
    SuffixAutomaton automaton;
    automaton.reserve(size);
    const size_t reserved = automaton.bytes();
    for (const TokenId token : text) automaton.append(token);
    EXPECT_EQ(automaton.bytes(), reserved);
    EXPECT_LE(automaton.bytes(), 84 * size + 2048);
  }
}

TEST(SuffixAutomaton, GrowsToLongTextsWithoutReserving) {
  const size_t size = 1'000'000;
  for (const TokenId alphabet : {1, 3, 50'000}) {
    const TokenIds text = random_text(size, alphabet, 4);
    SuffixAutomaton automaton;
    for (const TokenId token : text) automaton.append(token);
    EXPECT_LE(automaton.bytes(), 2 * 84 * size);
    const Match match = automaton.longest();
    EXPECT_LT(match.end, size);
    EXPECT_GE(common(text, match.end), match.length);
    EXPECT_GT(match.length, 0u);
  }
}

TEST(SuffixAutomaton, TakesAnyTokenIds) {
  SuffixAutomaton automaton;
  const TokenId large = std::numeric_limits<TokenId>::max();
  for (const TokenId token : {large, 0, large - 1, large, 0}) automaton.append(token);
  EXPECT_EQ(automaton.longest(), (Match{2, 2}));
}

}  // namespace
}  // namespace quire
