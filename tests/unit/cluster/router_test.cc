#include "cluster/router.h"

#include <gtest/gtest.h>

#include <array>

#include "cluster/prompt_pages.h"

namespace quire {
namespace {

TEST(PageContents, AreEqualWhereTokensAre) {
  const std::vector<PlannedPiece> shared{{11, 20}, {22, 40}, {33, 10}}, other{{11, 20}, {22, 40}, {44, 10}};
  const auto a = page_contents(shared, 0, 30, 16), b = page_contents(other, 1, 30, 16);
  ASSERT_EQ(a.size(), 6u);                                           // 100 tokens
  for (int page = 0; page < 3; ++page) EXPECT_EQ(a[page], b[page]);  // 48 tokens of the 60 they share
  for (int page = 3; page < 6; ++page) EXPECT_NE(a[page], b[page]);
  EXPECT_NE(page_contents(shared, 1, 30, 16)[5], a[5]);  // answers are their own
  // A longer piece with the same content begins like the shorter one.
  EXPECT_EQ(page_contents(std::vector<PlannedPiece>{{11, 32}}, 2, 0, 16)[0], a[0]);
}

TEST(PageHolders, NameWhoHasTheMost) {
  const std::vector<TokenId> pages{1, 2, 3};
  const PageKey first = chain({}, std::span(pages).first(1)), second = chain(first, std::span(pages).subspan(1, 1));
  PageHolders holders;
  EXPECT_EQ(holders.longest(pages).pages, 0);
  holders.set(first, 0, true);
  holders.set(first, 1, true);
  holders.set(second, 1, true);
  const PageHolders::Match match = holders.longest(pages);
  EXPECT_EQ(match.pages, 2);
  EXPECT_EQ(std::vector(match.replicas.begin(), match.replicas.end()), std::vector{1});
  holders.set(second, 1, false);
  EXPECT_EQ(holders.longest(pages).pages, 1);
  EXPECT_EQ(holders.longest(pages).replicas.size(), 2u);
}

TEST(SimulatedRouter, FollowsItsPolicy) {
  const PageHolders none;
  const std::array loads{3, 1, 2};
  SimulatedRouter round(RoutingPolicy::kRoundRobin, {}, 0), least(RoutingPolicy::kLeastLoad, {}, 0),
      two(RoutingPolicy::kPowerOfTwo, {}, 0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(round.choose(loads, {}, none), i % 3);
  EXPECT_EQ(least.choose(loads, {}, none), 1);
  std::array<int, 3> chosen{};
  for (int i = 0; i < 9000; ++i) ++chosen[static_cast<size_t>(two.choose(loads, {}, none))];
  // The least loaded one wins unless it is not drawn, the most loaded one only if it is drawn twice.
  EXPECT_NEAR(chosen[1], 5000, 200);
  EXPECT_NEAR(chosen[2], 3000, 200);
  EXPECT_NEAR(chosen[0], 1000, 200);
}

TEST(SimulatedRouter, LeavesTheCacheWhereLoadsDiffer) {
  const std::vector<TokenId> pages{1, 2};
  PageHolders holders;
  const PageKey first = chain({}, std::span(pages).first(1));
  holders.set(first, 2, true);
  SimulatedRouter router(RoutingPolicy::kPrefix, {.least_match = 0.5, .difference = 10, .ratio = 2}, 0);
  EXPECT_EQ(router.choose(std::array{1, 2, 9}, pages, holders), 2);
  EXPECT_EQ(router.choose(std::array{1, 2, 12}, pages, holders), 0);    // 11 more requests, and 12 times as many
  EXPECT_EQ(router.choose(std::array{20, 19, 31}, pages, holders), 2);  // not twice as many
  SimulatedRouter strict(RoutingPolicy::kPrefix, {.least_match = 0.6, .difference = 10, .ratio = 2}, 0);
  EXPECT_EQ(strict.choose(std::array{1, 2, 9}, pages, holders), 0);  // only half of the prompt is cached
}

}  // namespace
}  // namespace quire
