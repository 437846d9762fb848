#include "speculate/lookup/ngram_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quire {
namespace {

TokenIds after(const NgramPool& pool, TokenId first) {
  const auto tokens = pool.after(first);
  return {tokens.begin(), tokens.end()};
}

TEST(NgramPool, GivesTheLatestNgramOfAFirstToken) {
  NgramPool pool(3, 4, 2);
  EXPECT_EQ(after(pool, 1), TokenIds{});
  pool.insert(TokenIds{1, 2, 3});
  pool.insert(TokenIds{1, 4, 5});
  EXPECT_EQ(after(pool, 1), (TokenIds{4, 5}));
  pool.insert(TokenIds{1, 2, 3});
  EXPECT_EQ(after(pool, 1), (TokenIds{2, 3}));
  EXPECT_EQ(after(pool, 2), TokenIds{});
}

TEST(NgramPool, ReplacesTheLeastRecentlyInserted) {
  NgramPool pool(2, 1, 3);
  pool.insert(TokenIds{1, 10});
  pool.insert(TokenIds{2, 20});
  pool.insert(TokenIds{2, 20});  // takes no second place
  pool.insert(TokenIds{3, 30});
  EXPECT_EQ(after(pool, 1), TokenIds{10});
  pool.insert(TokenIds{1, 10});
  pool.insert(TokenIds{4, 40});
  EXPECT_EQ(after(pool, 1), TokenIds{10});
  EXPECT_EQ(after(pool, 2), TokenIds{});
  EXPECT_EQ(after(pool, 3), TokenIds{30});
  EXPECT_EQ(after(pool, 4), TokenIds{40});
}

TEST(NgramPool, NeverGrows) {
  NgramPool pool(4, 64, 8);
  EXPECT_EQ(pool.bytes(), 64u * 8 * (4 * 4 + 4));
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    TokenIds ngram(4);
    for (TokenId& token : ngram) token = static_cast<TokenId>(random() % 5000);
    pool.insert(ngram);
    ASSERT_EQ(after(pool, ngram[0]), TokenIds(ngram.begin() + 1, ngram.end()));
  }
  EXPECT_EQ(pool.bytes(), 64u * 8 * (4 * 4 + 4));
}

}  // namespace
}  // namespace quire
