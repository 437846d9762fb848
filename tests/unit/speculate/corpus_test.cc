#include "speculate/lookup/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "unit/speculate/guess.h"

namespace quire {
namespace {

// Tokens are letters; | is the end of a document.
TokenIds letters_and_gaps(std::string_view text) {
  TokenIds tokens = letters(text);
  std::replace(tokens.begin(), tokens.end(), TokenId{'|'}, kNoToken);
  return tokens;
}

Guesses corpus_guesses(std::string_view corpus, std::string_view context, int depth, int breadth, int min_match = 1) {
  Drafts drafts;
  Corpus(letters_and_gaps(corpus)).draft(letters_and_gaps(context), min_match, depth, breadth, drafts);
  return guesses(drafts);
}

TEST(Corpus, DraftsWhatFollowsTheLongestMatch) {
  EXPECT_EQ(corpus_guesses("the cat sat. a cow sat", "the co", 4, 1), (Guesses{{3, "w sa"}}));
  EXPECT_EQ(corpus_guesses("the cat sat. a cow sat", "the cat", 4, 1), (Guesses{{7, " sat"}}));
}

TEST(Corpus, DraftsTheMostFrequentContinuationFirst) {
  EXPECT_EQ(corpus_guesses("ax ay az ay", "a", 1, 3), (Guesses{{1, "y"}, {1, "x"}, {1, "z"}}));
  EXPECT_EQ(corpus_guesses("axp axq ayr axq", "a", 2, 1), (Guesses{{1, "xq"}}));
}

TEST(Corpus, FallsBackToShorterSuffixesWithOtherFirstTokens) {
  EXPECT_EQ(corpus_guesses("xab1 zb2 zb2 zb1", "xab", 1, 2), (Guesses{{3, "1"}, {1, "2"}}));
}

TEST(Corpus, EndsDraftsAtTheEndOfADocument) {
  EXPECT_EQ(corpus_guesses("abc|abd", "x", 4, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("abcd|xyz", "b", 5, 1), (Guesses{{1, "cd"}}));
  EXPECT_EQ(corpus_guesses("abcd|xyz", "y", 5, 1), (Guesses{{1, "z"}}));
  EXPECT_EQ(corpus_guesses("abcd|xyz", "d", 5, 1), Guesses{});
  EXPECT_EQ(corpus_guesses("abcd|xyz", "z", 5, 1), Guesses{});
}

TEST(Corpus, SortsTheEndOfTheTextBeforeAllTokens) { EXPECT_EQ(corpus_guesses("bab", "b", 2, 1), (Guesses{{1, "ab"}})); }

TEST(Corpus, MatchesNothingOverTheEndOfADocument) {
  EXPECT_EQ(corpus_guesses("ab|cd", "ab|c", 1, 1), (Guesses{{1, "d"}}));
  EXPECT_EQ(corpus_guesses("ab|cd", "ab|", 1, 1), Guesses{});
}

TEST(Corpus, DraftsNothingWithoutTextDepthBreadthOrMatch) {
  EXPECT_EQ(corpus_guesses("", "a", 2, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("a", "a", 2, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("|", "a", 2, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("aaaa", "", 2, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("aaaa", "a", 0, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("aaaa", "a", 2, 0), Guesses{});
  EXPECT_EQ(corpus_guesses("aaaa", "b", 2, 2), Guesses{});
  EXPECT_EQ(corpus_guesses("abab", "ab", 2, 2, 3), Guesses{});
}

TEST(Corpus, FollowsOneTextWhereTheSortedPartEnds) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>('0' + i % 70);
  const std::string twice = text + "|" + text;
  EXPECT_EQ(corpus_guesses(twice, text.substr(0, 40), 100, 1), (Guesses{{32, text.substr(40, 100)}}));
}

// By comparing every position: the longest match, the votes of each continuation.
Guesses slow_guesses(const TokenIds& text, const TokenIds& context, size_t min_match, size_t depth, size_t breadth) {
  const auto follow = [&](const TokenIds& tokens) {
    std::map<TokenId, int> counts;
    for (auto at = text.begin();; ++at) {
      at = std::search(at, text.end(), tokens.begin(), tokens.end());
      if (at == text.end()) break;
      const auto next = at + static_cast<ptrdiff_t>(tokens.size());
      if (next != text.end() && *next != kNoToken) ++counts[*next];
    }
    std::vector<std::pair<int, TokenId>> order;
    for (const auto& [token, count] : counts) order.emplace_back(-count, token);
    std::sort(order.begin(), order.end());
    return order;
  };
  Guesses found;
  for (size_t match = std::min(context.size(), Corpus::kLongestMatch); match >= min_match; --match) {
    const TokenIds suffix(context.end() - static_cast<ptrdiff_t>(match), context.end());
    for (const auto& first : follow(suffix)) {
      const auto letter = static_cast<char>(first.second);
      if (found.size() == breadth) break;
      if (std::any_of(found.begin(), found.end(), [&](const Guess& g) { return g.tokens[0] == letter; })) continue;
      std::string tokens(1, letter);
      while (tokens.size() < depth) {
        TokenIds so_far = suffix;
        so_far.insert(so_far.end(), tokens.begin(), tokens.end());
        const auto next = follow(so_far);
        if (next.empty()) break;
        tokens += static_cast<char>(next[0].second);
      }
      found.push_back(Guess{static_cast<int>(match), tokens});
    }
  }
  return found;
}

// Texts so short that all occurrences vote.
TEST(Corpus, DraftsWhatASearchOfAllPositionsFinds) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const std::string alphabet = std::string("abcdefg").substr(0, 2 + random() % 6) + (i % 2 == 0 ? "|" : "h");
    std::string corpus(1 + random() % 64, ' '), context(1 + random() % 8, ' ');
    for (char& c : corpus) c = alphabet[random() % alphabet.size()];
    for (char& c : context) c = alphabet[random() % (alphabet.size() - 1)];
    const size_t min_match = 1 + random() % 3, depth = 1 + random() % 6, breadth = 1 + random() % 4;
    EXPECT_EQ(corpus_guesses(corpus, context, static_cast<int>(depth), static_cast<int>(breadth),
                             static_cast<int>(min_match)),
              slow_guesses(letters_and_gaps(corpus), letters_and_gaps(context), min_match, depth, breadth))
        << "corpus " << corpus << " context " << context << " depth " << depth << " breadth " << breadth;
  }
}

TEST(Corpus, DraftsFromLongTextsInEightBytesAToken) {
  const size_t size = 1'000'000;
  std::mt19937 random(2);
  for (const uint32_t alphabet : {1u, 4u, 50'000u}) {
    TokenIds text(size);
    for (TokenId& token : text) token = static_cast<TokenId>(random() % alphabet);
    const Corpus corpus(text);
    EXPECT_EQ(corpus.bytes(), 8 * size);
    Drafts drafts;
    for (size_t end : {size_t{1000}, size / 2, size - 100}) {
      corpus.draft(std::span(text).subspan(end - 40, 40), 2, 20, 1, drafts);
      ASSERT_EQ(drafts.size(), 1u);
      EXPECT_EQ(drafts[0].match, 32);
      EXPECT_TRUE(std::equal(drafts[0].tokens.begin(), drafts[0].tokens.end(), text.begin() + static_cast<long>(end)));
    }
  }
}

}  // namespace
}  // namespace quire
