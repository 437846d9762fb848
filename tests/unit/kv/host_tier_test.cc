#include "kv/host_tier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/kv/page_samples.h"

namespace quire {
namespace {

constexpr size_t kHostPageBytes = 100;

bool holds(HostTier& tier, int number) {
  const auto page = tier.find(sample_key(number));
  if (!page) return false;
  EXPECT_TRUE(std::ranges::equal(*page, sample_page(number, kHostPageBytes)));
  return true;
}

bool put_page(HostTier& tier, int number, bool queue) {
  return tier.put(sample_key(number), fill_with(sample_page(number, kHostPageBytes)), queue);
}

TEST(HostTier, ReturnsThePageThatWasPut) {
  HostTier tier(kHostPageBytes, 2, 0);
  EXPECT_FALSE(holds(tier, 1));
  EXPECT_TRUE(put_page(tier, 1, false));
  EXPECT_TRUE(put_page(tier, 2, false));
  EXPECT_TRUE(holds(tier, 1));
  EXPECT_TRUE(holds(tier, 2));
}

TEST(HostTier, EvictsTheLeastRecentlyUsed) {
  HostTier tier(kHostPageBytes, 2, 0);
  put_page(tier, 1, false);
  put_page(tier, 2, false);
  EXPECT_TRUE(holds(tier, 1));  // a use
  put_page(tier, 3, false);
  EXPECT_FALSE(holds(tier, 2));
  EXPECT_TRUE(holds(tier, 3));
  put_page(tier, 1, false);  // also a use
  put_page(tier, 4, false);
  EXPECT_TRUE(holds(tier, 1));
  EXPECT_FALSE(holds(tier, 3));
  EXPECT_EQ(tier.pages(), 2u);
}

TEST(HostTier, NeverEvictsAQueuedPage) {
  HostTier tier(kHostPageBytes, 1, 2);
  EXPECT_TRUE(put_page(tier, 1, true));
  EXPECT_TRUE(put_page(tier, 2, true));
  for (int i = 3; i < 10; ++i) EXPECT_FALSE(put_page(tier, i, true)) << "the queue is full";
  EXPECT_TRUE(holds(tier, 1));
  EXPECT_TRUE(holds(tier, 2));
  EXPECT_TRUE(holds(tier, 9)) << "kept though not queued";
  EXPECT_FALSE(holds(tier, 8));
  EXPECT_EQ(tier.queue_length(), 2u);
}

TEST(HostTier, QueuesInOrderAndKeepsWrittenPages) {
  HostTier tier(kHostPageBytes, 1, 3);
  for (int i = 1; i <= 3; ++i) put_page(tier, i, true);
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(tier.first_queued());
    EXPECT_EQ(tier.first_queued()->key, sample_key(i));
    EXPECT_TRUE(std::ranges::equal(tier.first_queued()->page, sample_page(i, kHostPageBytes)));
    tier.written();
    EXPECT_TRUE(holds(tier, i));
    EXPECT_EQ(tier.pages(), static_cast<size_t>(1 + 3 - i));
  }
  EXPECT_FALSE(tier.first_queued());
}

TEST(HostTier, CanQueueAKeptPageLater) {
  HostTier tier(kHostPageBytes, 1, 1);
  put_page(tier, 1, false);
  EXPECT_TRUE(put_page(tier, 1, true));
  EXPECT_EQ(tier.queue_length(), 1u);
  EXPECT_TRUE(put_page(tier, 1, true)) << "it is queued already";
  EXPECT_EQ(tier.queue_length(), 1u);
  EXPECT_EQ(tier.pages(), 1u);
}

TEST(HostTier, CanBeJustAQueue) {
  HostTier tier(kHostPageBytes, 0, 2);
  EXPECT_TRUE(put_page(tier, 1, false));
  EXPECT_FALSE(holds(tier, 1));
  EXPECT_TRUE(put_page(tier, 1, true));
  EXPECT_TRUE(holds(tier, 1));
  tier.written();
  EXPECT_FALSE(holds(tier, 1));
  EXPECT_EQ(tier.pages(), 0u);
}

TEST(HostTier, MayHaveNoCapacityAtAll) {
  HostTier tier(kHostPageBytes, 0, 0);
  EXPECT_TRUE(put_page(tier, 1, false));
  EXPECT_FALSE(put_page(tier, 1, true));
  EXPECT_FALSE(holds(tier, 1));
}

}  // namespace
}  // namespace quire
