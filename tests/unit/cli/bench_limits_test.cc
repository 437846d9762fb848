#include "cli/bench/limits.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Samples, HaveAMedian) {
  EXPECT_EQ((Samples{{5}}.median()), 5);
  EXPECT_EQ((Samples{{9, 1, 2}}.median()), 2);
  EXPECT_EQ((Samples{{9, 4, 1, 2}}.median()), 3);
}

TEST(Samples, TakeTheMedianOfEachMachineRate) {
  const MachineRates machines[] = {{10, {1, 2, 3}}, {20, {4, 0, 5}}};
  const MachineRates median = median_of(machines);
  EXPECT_EQ(median.bandwidth, 15);
  EXPECT_EQ(median.multiply_adds, (ByMultiplyUnit{2.5, 1, 4, 0}));
}

}  // namespace
}  // namespace quire
