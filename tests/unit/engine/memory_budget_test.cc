#include "engine/memory_budget.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

namespace quire {
namespace {

TEST(MemoryBudget, GivesPartsUntilNoneIsLeft) {
  MemoryBudget budget(100);
  MemoryBudget::Share first = budget.take([](size_t left) { return left - 40; });
  EXPECT_EQ(first.bytes(), 60u);
  EXPECT_EQ(budget.left(), 40u);
  EXPECT_THROW(budget.take([](size_t) -> size_t { throw std::runtime_error("too little"); }), std::runtime_error);
  EXPECT_EQ(budget.left(), 40u);
  EXPECT_EQ(budget.shares(), 1);
  {
    const MemoryBudget::Share second = budget.take([](size_t left) { return left; });
    EXPECT_EQ(budget.left(), 0u);
    EXPECT_EQ(budget.shares(), 2);
  }
  EXPECT_EQ(budget.left(), 40u) << "a share ends with its owner";
  EXPECT_EQ(budget.shares(), 1);
}

TEST(MemoryBudget, ResizesAShareWithinItsOwnBytesAndTheRest) {
  MemoryBudget budget(100);
  const MemoryBudget::Share other = budget.take([](size_t) { return size_t{30}; });
  MemoryBudget::Share share = budget.take([](size_t) { return size_t{50}; });
  budget.resize(share, [](size_t left) {
    EXPECT_EQ(left, 70u);
    return left - 5;
  });
  EXPECT_EQ(share.bytes(), 65u);
  EXPECT_EQ(budget.left(), 5u);
  EXPECT_THROW(budget.resize(share, [](size_t) -> size_t { throw std::runtime_error("x"); }), std::runtime_error);
  EXPECT_EQ(share.bytes(), 65u);
}

TEST(MemoryBudget, MovesShares) {
  MemoryBudget budget(100);
  MemoryBudget::Share a = budget.take([](size_t) { return size_t{10}; }), b;
  b = std::move(a);
  EXPECT_EQ(b.bytes(), 10u);
  EXPECT_EQ(budget.left(), 90u);
  b = MemoryBudget::Share();
  EXPECT_EQ(budget.left(), 100u);
}

}  // namespace
}  // namespace quire
