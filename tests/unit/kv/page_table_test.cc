#include "kv/page_table.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace quire {
namespace {

TEST(PageTable, GrowsByWholePages) {
  UnitPool pool(4, 16);
  PageTable table;
  EXPECT_EQ(table.units_to_grow(pool, 17), 2);
  ASSERT_TRUE(table.grow(pool, 17));
  EXPECT_EQ(table.pages(), 2);
  EXPECT_EQ(table.units_to_grow(pool, 15), 0);
  ASSERT_TRUE(table.grow(pool, 15));
  EXPECT_EQ(pool.free_units(), 2u);
  EXPECT_EQ(table.tokens(), 32);
  EXPECT_NE(table.unit(0, 0), table.unit(0, 1));
}

TEST(PageTable, GrowsCompletelyOrNotAtAll) {
  UnitPool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 10));
  EXPECT_FALSE(table.grow(pool, 23));
  EXPECT_EQ(table.tokens(), 10);
  EXPECT_EQ(table.pages(), 1);
  EXPECT_EQ(pool.free_units(), 1u);
  EXPECT_TRUE(table.grow(pool, 22));
}

TEST(PageTable, CountsTheCopyOfASharedLastPage) {
  UnitPool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 10));
  PageTable other = table.fork(pool);
  EXPECT_EQ(other.units_to_grow(pool, 0), 0);
  EXPECT_EQ(other.units_to_grow(pool, 1), 1);
  EXPECT_EQ(other.units_to_grow(pool, 7), 2);
  EXPECT_FALSE(other.grow(pool, 7));
  EXPECT_TRUE(other.grow(pool, 1));
  EXPECT_EQ(other.make_writable(pool, 0, 10), (UnitCopy{UnitId{0}, UnitId{1}}));
  EXPECT_EQ(other.make_writable(pool, 0, 10), std::nullopt);
  EXPECT_EQ(table.make_writable(pool, 0, 9), std::nullopt);  // alone again
}

TEST(PageTable, NeedsNoCopyWhenTheSharedPageIsFull) {
  UnitPool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 16));
  PageTable other = table.fork(pool);
  EXPECT_EQ(other.units_to_grow(pool, 16), 1);
}

TEST(PageTable, SharesAPageThatAnotherSequenceFilled) {
  UnitPool pool(2, 16);
  PageTable first, second;
  ASSERT_TRUE(first.grow(pool, 16));
  second.append_shared(pool, std::array{first.unit(0, 0)});
  EXPECT_EQ(second.tokens(), 16);
  EXPECT_TRUE(pool.shared(first.unit(0, 0)));
  first.release(pool);
  EXPECT_EQ(pool.free_units(), 1u);
  second.release(pool);
  EXPECT_EQ(pool.free_units(), 2u);
}

TEST(PageTable, TruncatesToTheTokensKept) {
  UnitPool pool(3, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 40));
  table.truncate(pool, 33);
  EXPECT_EQ(pool.free_units(), 0u);
  table.truncate(pool, 32);
  EXPECT_EQ(pool.free_units(), 1u);
  table.truncate(pool, 0);
  EXPECT_EQ(pool.free_units(), 3u);
}

TEST(PageTable, TakesAUnitOfEachGroupForAPage) {
  UnitPool pool(6, 16);
  PageTable table(3);
  EXPECT_EQ(table.units_to_grow(pool, 17), 6);
  EXPECT_FALSE(table.grow(pool, 33));
  ASSERT_TRUE(table.grow(pool, 20));
  EXPECT_EQ(pool.free_units(), 0u);
  EXPECT_EQ(table.held_units(), 6);
  EXPECT_NE(table.unit(0, 1), table.unit(2, 1));
  table.truncate(pool, 16);
  EXPECT_EQ(pool.free_units(), 3u);
  PageTable other = table.fork(pool);
  EXPECT_EQ(other.units_to_grow(pool, 1), 3);
  table.truncate(pool, 8);
  EXPECT_EQ(table.units_to_grow(pool, 1), 3) << "a copy of each group's shared unit";
}

TEST(PageTable, GivesUpUnitsBehindAWindow) {
  UnitPool pool(8, 16);
  PageTable table(2);
  ASSERT_TRUE(table.grow(pool, 64));
  table.release_before(pool, 1, 2);
  table.release_before(pool, 1, 1);  // they have gone
  EXPECT_EQ(pool.free_units(), 2u);
  EXPECT_EQ(table.unit(1, 1), kNoUnit);
  EXPECT_NE(table.unit(0, 1), kNoUnit);
  EXPECT_EQ(table.held_units(), 6);
  PageTable other = table.fork(pool);
  table.release(pool);
  EXPECT_EQ(pool.free_units(), 2u);
  other.truncate(pool, 16);
  EXPECT_EQ(other.held_units(), 1);
  other.release(pool);
  EXPECT_EQ(pool.free_units(), 8u);
}

TEST(PageTable, SharesAPageThatIsBehindAWindow) {
  UnitPool pool(3, 16);
  PageTable first(2), second(2);
  ASSERT_TRUE(first.grow(pool, 16));
  second.append_shared(pool, std::array{first.unit(0, 0), kNoUnit});
  EXPECT_EQ(second.tokens(), 16);
  EXPECT_EQ(second.held_units(), 1);
  first.release(pool);
  EXPECT_EQ(pool.free_units(), 2u);
  second.release(pool);
  EXPECT_EQ(pool.free_units(), 3u);
}

TEST(PageTable, IsEmptyAfterItIsMoved) {
  UnitPool pool(1, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 3));
  PageTable other = std::move(table);
  table.release(pool);  // NOLINT(bugprone-use-after-move): specified to be empty
  EXPECT_EQ(pool.free_units(), 0u);
  EXPECT_EQ(other.tokens(), 3);
  other.release(pool);
  EXPECT_EQ(pool.free_units(), 1u);
}

}  // namespace
}  // namespace quire
