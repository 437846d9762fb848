#include "base/team.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace quire {
namespace {

TEST(Team, RunsEveryTileOnceOnThreadsOfItsOwn) {
  for (const int threads : {1, 2, 3, 8}) {
    Team team(threads);
    EXPECT_EQ(team.size(), threads);
    for (int loop = 0; loop < 3000; ++loop) {
      const int tiles = loop % 37;
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tiles));
      std::atomic<bool> in_range{true};
      team.for_tiles(tiles, [&](int tile, int thread) {
        if (thread < 0 || thread >= threads) in_range = false;
        ++runs[static_cast<size_t>(tile)];
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
      ASSERT_TRUE(in_range);
    }
  }
}

TEST(Team, MakesTheTilesWorkVisibleToTheCaller) {
  Team team(4);
  std::vector<int> data(1000);
  for (int loop = 0; loop < 500; ++loop) {
    team.for_tiles(1000, [&](int tile, int) { data[static_cast<size_t>(tile)] = loop; });
    ASSERT_EQ(std::accumulate(data.begin(), data.end(), 0), 1000 * loop);
  }
}

TEST(Team, WakesSleepingThreads) {
  Team team(3);
  std::atomic<int> done{0};
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    team.for_tiles(64, [&](int, int) { ++done; });
  }
  EXPECT_EQ(done, 20 * 64);
}

}  // namespace
}  // namespace quire
