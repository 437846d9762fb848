#include "base/memory_nodes.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "base/team.h"

namespace quire {
namespace {

TEST(MemoryNodes, BelongToParts) {
  struct Case {
    int parts, nodes;
    std::vector<NodeRange> expected;
  };
  const Case cases[] = {{1, 1, {{0, 1}}},
                        {3, 1, {{0, 1}, {0, 1}, {0, 1}}},
                        {2, 2, {{0, 1}, {1, 2}}},
                        {4, 2, {{0, 1}, {0, 1}, {1, 2}, {1, 2}}},
                        {3, 2, {{0, 1}, {0, 1}, {1, 2}}},
                        {2, 4, {{0, 2}, {2, 4}}},
                        {2, 3, {{0, 1}, {1, 3}}},
                        {1, 8, {{0, 8}}}};
  for (const Case& c : cases) {
    for (int part = 0; part < c.parts; ++part)
      EXPECT_EQ(nodes_of_part(part, c.parts, c.nodes), c.expected[static_cast<size_t>(part)])
          << part << " of " << c.parts << " on " << c.nodes;
  }
}

TEST(MemoryNodes, AreThoseOfTheMachine) {
  const MemoryNodes two("node:2 core:3 pu:2");
  EXPECT_EQ(two.size(), 2);
  EXPECT_EQ(two.cores({0, 1}), 3);
  EXPECT_EQ(two.cores({0, 2}), 6);
  EXPECT_EQ(MemoryNodes("core:4 pu:1").size(), 1);
  EXPECT_EQ(MemoryNodes("pack:2 [numa] [numa] core:4 pu:1").size(), 2) << "two memories of each package";
}

TEST(MemoryNodes, LetThreadsRunWhereTheyRanBefore) {
  const MemoryNodes here;
  ASSERT_GE(here.size(), 1);
  cpu_set_t before, within, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  {
    const MemoryNodes::Visit visit(&here, {0, 1});
    ASSERT_EQ(sched_getaffinity(0, sizeof within, &within), 0);
    EXPECT_GE(CPU_COUNT(&within), here.cores({0, 1}));
    if (here.size() > 1) EXPECT_LT(CPU_COUNT(&within), CPU_COUNT(&before));
    for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) EXPECT_LE(CPU_ISSET(cpu, &within), CPU_ISSET(cpu, &before)) << cpu;
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// On one node this shows no more than that nothing is lost.
TEST(MemoryNodes, TakeMemory) {
  const MemoryNodes here;
  const LargeBuffer buffer(size_t{8} << 20);
  std::memset(buffer.data(), 7, buffer.size());
  const auto part = [&](size_t i) {
    return std::span<const std::byte>(buffer.data(), buffer.size()).subspan(i * 3000001, 3000001);
  };
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      const int node = (static_cast<int>(i) + round) % here.size();
      if (const int error = here.move(part(i), {node, node + 1}); error != 0) GTEST_SKIP() << std::strerror(error);
      const std::byte* const middle = part(i).data() + 1500000;
      if (here.node_of(middle) >= 0) EXPECT_EQ(here.node_of(middle), node);
    }
  }
  for (size_t i = 0; i < buffer.size(); ++i) ASSERT_EQ(buffer.data()[i], std::byte{7}) << i;
}

TEST(MemoryNodes, HoldTheThreadsOfATeam) {
  const MemoryNodes here;
  const NodeRange last{here.size() - 1, here.size()};
  std::atomic<int> begun{0};
  std::optional<Team> team;
  team.emplace(4, [&] {
    ++begun;
    here.run_on(last);
  });
  std::vector<int> cpus(64, -1);
  team->for_tiles(64, [&](int tile, int thread) {
    cpu_set_t allowed;
    if (thread > 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0)
      cpus[static_cast<size_t>(tile)] = CPU_COUNT(&allowed);
  });
  for (const int count : cpus) {
    if (count >= 0) EXPECT_GE(count, here.cores(last));
  }
  team.reset();
  EXPECT_EQ(begun, 3) << "all but the thread that made the team";
}

}  // namespace
}  // namespace quire
