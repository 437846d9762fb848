#include "speculate/lookup/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

constexpr Lookahead::Options kSmall{.n = 3, .window = 4, .sets = 16, .ways = 4};

TokenIds copy(std::span<const TokenId> tokens) { return {tokens.begin(), tokens.end()}; }

struct Found {
  int match;
  TokenIds tokens;
};
Found guess(const Lookahead& lookahead, int depth) {
  Drafts drafts;
  lookahead.draft(depth, drafts);
  if (drafts.empty()) return {-1, {}};
  return {drafts[0].match, copy(drafts[0].tokens)};
}

TEST(Lookahead, DraftsNothingBeforeAnyTokenOrAtDepthZero) {
  Lookahead lookahead(kSmall);
  EXPECT_EQ(guess(lookahead, 4).match, -1);
  lookahead.append(TokenIds{1});
  EXPECT_EQ(guess(lookahead, 0).match, -1);
  EXPECT_EQ(guess(lookahead, 4).match, 0);
}

TEST(Lookahead, ChainsNgramsOfThePrompt) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1, 2, 3, 4, 5, 9, 1});
  EXPECT_EQ(guess(lookahead, 4).match, 1);
  EXPECT_EQ(guess(lookahead, 4).tokens, (TokenIds{2, 3, 4, 5}));
  EXPECT_EQ(guess(lookahead, 3).tokens, (TokenIds{2, 3, 4}));
}

TEST(Lookahead, GuessesWithTheWindowWhereThePoolKnowsNothing) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1, 2, 3, 4});
  const Found found = guess(lookahead, 9);
  EXPECT_EQ(found.match, 0);
  EXPECT_EQ(found.tokens, copy(lookahead.window()));
  EXPECT_EQ(found.tokens.size(), 4u);
}

TEST(Lookahead, PredictionsOfRejectedRowsBecomeTheWindow) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1, 2});
  // 10 was right, 11 was not: the text goes on with 10, 20.
  lookahead.observe(TokenIds{2, 10, 11, 12}, TokenIds{10, 20, 21, 22});
  EXPECT_EQ(lookahead.window()[0], 21);
  EXPECT_EQ(lookahead.window()[1], 22);
  const Found found = guess(lookahead, 2);
  EXPECT_EQ(found.match, 0);
  EXPECT_EQ(found.tokens, (TokenIds{21, 22}));
}

TEST(Lookahead, NgramsOfRejectedRowsEnterThePool) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1, 2});
  lookahead.observe(TokenIds{2, 10, 11, 12}, TokenIds{30, 40, 41, 42});
  EXPECT_EQ(copy(lookahead.pool().after(2)), (TokenIds{10, 40}));  // over the last token of the text
  EXPECT_EQ(copy(lookahead.pool().after(10)), (TokenIds{11, 41}));
  EXPECT_EQ(copy(lookahead.pool().after(11)), (TokenIds{12, 42}));
  EXPECT_EQ(copy(lookahead.pool().after(1)), (TokenIds{2, 30}));  // accepted
}

TEST(Lookahead, NgramsOfTheTextPrecedeThoseOfGuesses) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1, 2});
  lookahead.observe(TokenIds{2, 3, 9}, TokenIds{3, 4, 8});
  EXPECT_EQ(copy(lookahead.pool().after(2)), (TokenIds{3, 4}));
}

TEST(Lookahead, AcceptedTokensAreObservedLikeAppendedOnes) {
  Lookahead observed(kSmall), appended(kSmall);
  observed.append(TokenIds{1, 2});
  appended.append(TokenIds{1, 2, 3, 4, 5});
  observed.observe(TokenIds{2, 3, 4}, TokenIds{3, 4, 5});
  EXPECT_EQ(copy(observed.window()), copy(appended.window()));
  for (TokenId token = 1; token <= 5; ++token) {
    EXPECT_EQ(copy(observed.pool().after(token)), copy(appended.pool().after(token)));
  }
}

// A target whose next token depends on the last `order` tokens of its text.
TokenId next_token(std::span<const TokenId> text, size_t order) {
  uint32_t hash = 7;
  for (const TokenId token : text.last(std::min(order, text.size()))) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 2654435761u;
  }
  return static_cast<TokenId>((hash >> 16) % 50);
}

// Decodes `tokens` tokens. Returns the number of steps.
int decode(Lookahead& lookahead, TokenIds& text, size_t tokens, size_t order, int depth) {
  int steps = 0;
  for (const size_t end = text.size() + tokens; text.size() < end; ++steps) {
    TokenIds guessed{text.back()}, predicted;
    const TokenIds drafted = guess(lookahead, depth).tokens;
    guessed.insert(guessed.end(), drafted.begin(), drafted.end());
    TokenIds chain(text.begin(), text.end() - 1);
    for (const TokenId token : guessed) {
      chain.push_back(token);
      predicted.push_back(next_token(chain, order));
    }
    lookahead.observe(guessed, predicted);
    for (size_t i = 0; i < predicted.size(); ++i) {
      text.push_back(predicted[i]);
      if (i + 1 < guessed.size() && guessed[i + 1] != predicted[i]) break;
    }
  }
  return steps;
}

TEST(Lookahead, DecodesTheSameTextInFewerSteps) {
  TokenIds plain{1, 2, 3}, text = plain;
  while (plain.size() < 600) plain.push_back(next_token(plain, 1));
  Lookahead lookahead({});
  lookahead.append(text);
  const int steps = decode(lookahead, text, 500, 1, 4);
  text.resize(500);
  plain.resize(500);
  EXPECT_EQ(text, plain);
  EXPECT_LT(steps, 150);  // the target is periodic, so nearly all drafts are right: 5 tokens a step
}

TEST(Lookahead, DraftsTheSameForTheSameTokens) {
  TokenIds a{1, 2, 3}, b = a;
  Lookahead first({}), second({});
  first.append(a);
  second.append(b);
  EXPECT_EQ(decode(first, a, 300, 3, 6), decode(second, b, 300, 3, 6));
  EXPECT_EQ(a, b);
  EXPECT_EQ(guess(first, 8).tokens, guess(second, 8).tokens);
}

TEST(Lookahead, TakesDraftsOfOtherDraftersAndLongerThanTheWindow) {
  Lookahead lookahead(kSmall);
  lookahead.append(TokenIds{1});
  TokenIds guessed(20), predicted(20);
  for (size_t i = 0; i < 20; ++i) {
    guessed[i] = static_cast<TokenId>(100 + i);
    predicted[i] = static_cast<TokenId>(200 + i);
  }
  guessed[0] = 1;
  lookahead.observe(guessed, predicted);
  EXPECT_EQ(copy(lookahead.window()), (TokenIds{201, 202, 203, 204}));
}

TEST(Lookahead, BeginsWithAStepWithoutPrompt) {
  Lookahead lookahead(kSmall);
  lookahead.observe(TokenIds{1}, TokenIds{2});
  lookahead.observe(TokenIds{2}, TokenIds{3});
  EXPECT_EQ(copy(lookahead.pool().after(1)), (TokenIds{2, 3}));
}

}  // namespace
}  // namespace quire
