#include "kv/page_pool.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PagePool, HandsOutEveryPageOnceAndThenNone) {
  PagePool pool(3);
  EXPECT_EQ(pool.page_tokens(), 16);
  EXPECT_EQ(pool.allocate(), PageId{0});
  EXPECT_EQ(pool.allocate(), PageId{1});
  EXPECT_EQ(pool.allocate(), PageId{2});
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.free_pages(), 0u);
}

TEST(PagePool, HandsOutTheLastFreedPageFirst) {
  PagePool pool(3);
  const PageId a = *pool.allocate(), b = *pool.allocate();
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_EQ(pool.allocate(), b);
}

TEST(PagePool, FreesAPageWithItsLastReference) {
  PagePool pool(1);
  const PageId page = *pool.allocate();
  EXPECT_FALSE(pool.shared(page));
  pool.retain(page);
  EXPECT_TRUE(pool.shared(page));
  EXPECT_FALSE(pool.release(page));
  EXPECT_EQ(pool.free_pages(), 0u);
  EXPECT_TRUE(pool.release(page));
  EXPECT_EQ(pool.free_pages(), 1u);
  EXPECT_EQ(pool.references(page), 0u);
}

TEST(PagePool, CountsPagesForTokens) {
  const PagePool pool(1, 16);
  EXPECT_EQ(pool.pages_for(0), 0);
  EXPECT_EQ(pool.pages_for(1), 1);
  EXPECT_EQ(pool.pages_for(16), 1);
  EXPECT_EQ(pool.pages_for(17), 2);
  EXPECT_EQ(pool.pages_for(2147483647), 134217728);
}

TEST(PagePool, MayBeEmpty) { EXPECT_EQ(PagePool(0).allocate(), std::nullopt); }

#ifndef NDEBUG
TEST(PagePoolDeathTest, AbortsOnMisuse) {
  PagePool pool(2);
  const PageId page = *pool.allocate();
  pool.release(page);
  EXPECT_DEATH(pool.release(page), "releases a free page");
  EXPECT_DEATH(pool.retain(page), "retains a free page");
  EXPECT_DEATH(pool.release(PageId{2}), "");
}
#endif

}  // namespace
}  // namespace quire
