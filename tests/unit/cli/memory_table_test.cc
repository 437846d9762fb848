#include "cli/memory/memory_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(MemoryTable, SaysOfHowManyDevicesItIs) {
  MemoryPlan plan;
  plan.own_memory = true;
  plan.weights = 3 * kMiB;
  plan.budget = 8 * kMiB;
  const auto total = [&] { return memory_table(plan).back(); };
  EXPECT_EQ(total(), "total              3 MiB  of 8 MiB available (set with --gpu-memory-utilization)");
  EXPECT_FALSE(memory_json(plan).contains("devices"));
  plan.devices = 2;
  EXPECT_EQ(total(),
            "total              3 MiB  of 8 MiB available (set with --gpu-memory-utilization), on each of 2 devices");
  EXPECT_EQ(memory_json(plan)["devices"], 2);
}

}  // namespace
}  // namespace quire
