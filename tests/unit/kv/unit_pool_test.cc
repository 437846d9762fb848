#include "kv/unit_pool.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(UnitPool, HandsOutEveryUnitOnceAndThenNone) {
  UnitPool pool(3);
  EXPECT_EQ(pool.page_tokens(), 16);
  EXPECT_EQ(pool.allocate(), UnitId{0});
  EXPECT_EQ(pool.allocate(), UnitId{1});
  EXPECT_EQ(pool.allocate(), UnitId{2});
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.free_units(), 0u);
}

TEST(UnitPool, HandsOutTheLastFreedPageFirst) {
  UnitPool pool(3);
  const UnitId a = *pool.allocate(), b = *pool.allocate();
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_EQ(pool.allocate(), b);
}

TEST(UnitPool, FreesAUnitWithItsLastReference) {
  UnitPool pool(1);
  const UnitId unit = *pool.allocate();
  EXPECT_FALSE(pool.shared(unit));
  pool.retain(unit);
  EXPECT_TRUE(pool.shared(unit));
  EXPECT_FALSE(pool.release(unit));
  EXPECT_EQ(pool.free_units(), 0u);
  EXPECT_TRUE(pool.release(unit));
  EXPECT_EQ(pool.free_units(), 1u);
  EXPECT_EQ(pool.references(unit), 0u);
}

TEST(UnitPool, CountsPagesForTokens) {
  const UnitPool pool(1, 16);
  EXPECT_EQ(pool.pages_for(0), 0);
  EXPECT_EQ(pool.pages_for(1), 1);
  EXPECT_EQ(pool.pages_for(16), 1);
  EXPECT_EQ(pool.pages_for(17), 2);
  EXPECT_EQ(pool.pages_for(2147483647), 134217728);
}

TEST(UnitPool, MayBeEmpty) { EXPECT_EQ(UnitPool(0).allocate(), std::nullopt); }

#ifndef NDEBUG
TEST(UnitPoolDeathTest, AbortsOnMisuse) {
  UnitPool pool(2);
  const UnitId unit = *pool.allocate();
  pool.release(unit);
  EXPECT_DEATH(pool.release(unit), "releases a free unit");
  EXPECT_DEATH(pool.retain(unit), "retains a free unit");
  EXPECT_DEATH(pool.release(UnitId{2}), "");
}
#endif

}  // namespace
}  // namespace quire
