#include "base/team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace quire {
namespace {

TEST(Team, RunsEveryTileOnceOnItsThreads) {
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need an unlimited address space
// Exits with 0 if a team that cannot start all its threads throws.
void start_more_threads_than_fit() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{100} << 20);  // about 10 stacks
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const Team team(1000);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    std::_Exit(e.kind() == ErrorKind::kResource ? 0 : 1);
  }
  std::_Exit(2);
}

TEST(TeamDeathTest, ThrowsIfNotAllThreadsCanStart) {
  EXPECT_EXIT(start_more_threads_than_fit(), testing::ExitedWithCode(0), "cannot start 1000 threads, only");
}
#endif

}  // namespace
}  // namespace quire
