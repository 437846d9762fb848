#include "base/team.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <thread>
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

// The team's own threads wait until the helper has run a tile.
TEST(Team, LetsOtherThreadsHelp) {
  for (const int threads : {1, 3}) {
    Team team(threads, {}, /*takes_help=*/true);
    EXPECT_EQ(team.loop(), 0u);
    std::atomic<bool> ended{false};
    std::thread helper([&] {
      while (!ended)
        if (const uint32_t loop = team.loop()) team.help(loop);
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int helped_loops = 0;
    for (int loop = 0; loop < 20; ++loop) {
      std::vector<std::atomic<int>> runs(40);
      std::vector<int> data(40);
      std::atomic<bool> helped{false};
      team.for_tiles(40, [&](int tile, int thread) {
        ++runs[static_cast<size_t>(tile)];
        data[static_cast<size_t>(tile)] = 1;
        if (thread == threads) helped = true;
        while (!helped && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
      ASSERT_EQ(std::accumulate(data.begin(), data.end(), 0), 40);
      helped_loops += helped;
    }
    ended = true;
    helper.join();
    EXPECT_EQ(helped_loops, 20) << threads;
  }
}

TEST(Team, HelpsNoLoopThatHasEnded) {
  Team team(1, {}, /*takes_help=*/true);
  uint32_t first = 0;
  team.for_tiles(2, [&](int, int) { first = team.loop(); });
  EXPECT_NE(first, 0u);
  team.help(first);
  std::atomic<int> runs{0};
  team.for_tiles(2, [&](int, int) {
    team.help(first);
    ++runs;
  });
  EXPECT_EQ(runs, 2);
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

// Without turns, the loops of two threads would mix up their tiles.
TEST(Team, ServesSeveralThreadsInTurns) {
  Team team(3);
  std::atomic<bool> right{true};
  const auto work = [&](int loops, bool takes_turns) {
    for (int i = 0; i < loops; ++i) {
      std::optional<Team::Turn> turn, nested;
      if (takes_turns) turn.emplace(team), nested.emplace(team);
      for (int loop = 0; loop < 3; ++loop) {
        std::vector<std::atomic<int>> runs(23);
        team.for_tiles(23, [&](int tile, int) { ++runs[static_cast<size_t>(tile)]; });
        for (const auto& count : runs) right = right && count == 1;
      }
    }
  };
  std::vector<std::thread> threads;
  for (const bool takes_turns : {true, false, true}) threads.emplace_back(work, 300, takes_turns);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
}

TEST(Team, GivesTheTurnToWhoeverWaits) {
  Team team(2);
  std::atomic<int> turns{0};
  std::atomic<bool> had_turn{false};
  std::thread waiting;
  {
    const Team::Turn turn(team);
    waiting = std::thread([&] {
      const Team::Turn other(team);
      had_turn = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(had_turn);
  }
  // A thread that takes turn after turn cannot keep others waiting.
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       !had_turn && std::chrono::steady_clock::now() < end; ++turns)
    const Team::Turn turn(team);
  waiting.join();
  EXPECT_LE(turns, 1000);
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
