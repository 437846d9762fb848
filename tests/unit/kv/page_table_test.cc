#include "kv/page_table.h"

#include <gtest/gtest.h>

#include <utility>

namespace quire {
namespace {

TEST(PageTable, GrowsByWholePages) {
  PagePool pool(4, 16);
  PageTable table;
  EXPECT_EQ(table.pages_to_grow(pool, 17), 2);
  ASSERT_TRUE(table.grow(pool, 17));
  EXPECT_EQ(table.pages().size(), 2u);
  EXPECT_EQ(table.pages_to_grow(pool, 15), 0);
  ASSERT_TRUE(table.grow(pool, 15));
  EXPECT_EQ(pool.free_pages(), 2u);
  EXPECT_EQ(table.tokens(), 32);
  EXPECT_NE(table.pages()[0], table.pages()[1]);
}

TEST(PageTable, GrowsCompletelyOrNotAtAll) {
  PagePool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 10));
  EXPECT_FALSE(table.grow(pool, 23));
  EXPECT_EQ(table.tokens(), 10);
  EXPECT_EQ(table.pages().size(), 1u);
  EXPECT_EQ(pool.free_pages(), 1u);
  EXPECT_TRUE(table.grow(pool, 22));
}

TEST(PageTable, CountsTheCopyOfASharedLastPage) {
  PagePool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 10));
  PageTable other = table.fork(pool);
  EXPECT_EQ(other.pages_to_grow(pool, 0), 0);
  EXPECT_EQ(other.pages_to_grow(pool, 1), 1);
  EXPECT_EQ(other.pages_to_grow(pool, 7), 2);
  EXPECT_FALSE(other.grow(pool, 7));
  EXPECT_TRUE(other.grow(pool, 1));
  EXPECT_EQ(other.make_writable(pool, 10), (PageCopy{PageId{0}, PageId{1}}));
  EXPECT_EQ(other.make_writable(pool, 10), std::nullopt);
  EXPECT_EQ(table.make_writable(pool, 9), std::nullopt);  // alone again
}

TEST(PageTable, NeedsNoCopyWhenTheSharedPageIsFull) {
  PagePool pool(2, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 16));
  PageTable other = table.fork(pool);
  EXPECT_EQ(other.pages_to_grow(pool, 16), 1);
}

TEST(PageTable, SharesAPageThatAnotherSequenceFilled) {
  PagePool pool(2, 16);
  PageTable first, second;
  ASSERT_TRUE(first.grow(pool, 16));
  second.append_shared(pool, first.pages()[0]);
  EXPECT_EQ(second.tokens(), 16);
  EXPECT_TRUE(pool.shared(first.pages()[0]));
  first.release(pool);
  EXPECT_EQ(pool.free_pages(), 1u);
  second.release(pool);
  EXPECT_EQ(pool.free_pages(), 2u);
}

TEST(PageTable, TruncatesToTheTokensKept) {
  PagePool pool(3, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 40));
  table.truncate(pool, 33);
  EXPECT_EQ(pool.free_pages(), 0u);
  table.truncate(pool, 32);
  EXPECT_EQ(pool.free_pages(), 1u);
  table.truncate(pool, 0);
  EXPECT_EQ(pool.free_pages(), 3u);
}

TEST(PageTable, IsEmptyAfterItIsMoved) {
  PagePool pool(1, 16);
  PageTable table;
  ASSERT_TRUE(table.grow(pool, 3));
  PageTable other = std::move(table);
  table.release(pool);  // NOLINT(bugprone-use-after-move): specified to be empty
  EXPECT_EQ(pool.free_pages(), 0u);
  EXPECT_EQ(other.tokens(), 3);
  other.release(pool);
  EXPECT_EQ(pool.free_pages(), 1u);
}

}  // namespace
}  // namespace quire
