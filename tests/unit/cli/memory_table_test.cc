#include "cli/memory/memory_table.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

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

// Beside a device: what the CPU has of the experts alone, and of those that are not in the layers that it computes whole.
TEST(MemoryTable, SaysWhichExpertsAreTheCpus) {
  MemoryPlan plan;
  plan.own_memory = true;
  plan.host.emplace();
  plan.host->weights = 5 * kMiB;
  plan.host->budget = 16 * kMiB;
  plan.cpu_moe_layers = 6;
  EXPECT_EQ(memory_table(plan).back(), "the CPU: the experts of layers 0 to 5");
  StagePlan cpu, device;
  cpu.layers = {0, 4};
  device.layers = {4, 8};
  plan.stages = {cpu, device};
  const std::vector<std::string> lines = memory_table(plan);
  ASSERT_GE(lines.size(), 4U);
  const auto last = std::span(lines).last(4);
  EXPECT_EQ(last[0],
            "on the host        5 MiB  of 16 MiB available (set with --memory): weights 5, KV cache 0, activations 0, "
            "other 0");
  EXPECT_EQ(last[1], "the CPU: the experts of layers 4 to 5");
  EXPECT_EQ(last[2], "the CPU: layers 0 to 3, weights 0 MiB, KV cache 0 MiB");
  EXPECT_EQ(last[3], "the device: layers 4 to 7, weights 0 MiB, KV cache 0 MiB");
}

}  // namespace
}  // namespace quire
