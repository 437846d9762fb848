#include "ops/local_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "unit/ops/local_group.h"

namespace quire {
namespace {

using testing::LocalGroup;

TEST(Share, CoversAllUnitsOnceAndEvenly) {
  for (int units = 0; units <= 40; ++units) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      int next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(units, rank, ranks);
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.size(), units / ranks);
        EXPECT_LE(share.size(), (units + ranks - 1) / ranks);
        next = share.end;
      }
      EXPECT_EQ(next, units);
    }
  }
}

float value(int round, int part, int row, int col) {
  return static_cast<float>(((round * 3 + part) * 1000 + row) * 1000 + col);
}

// Rows of which a rank has written its columns.
struct Written {
  int cols;
  std::vector<float> memory;
  Rows y;
  Written(Communicator& rank, int round, int part, int units, int width, int cols, int rows)
      : cols(cols), memory(static_cast<size_t>(rows) * row_stride(cols), -1), y{memory.data(), cols, row_stride(cols)} {
    const Share own = rank.share(units);
    for (int row = 0; row < rows; ++row) {
      for (int col = own.begin * width; col < std::min(own.end * width, cols); ++col)
        y.row(row)[col] = value(round, part, row, col);
    }
  }
  int wrong(int round, int part, int rows) const {
    int count = 0;
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < cols; ++col) count += y.row(row)[col] != value(round, part, row, col);
    }
    return count;
  }
};

TEST(LocalRanks, GiveEveryRankTheColumnsOfAll) {
  for (const int ranks : {1, 2, 3, 5}) {
    LocalGroup group(ranks, 2);
    for (const int rows : {1, 3, 300}) {
      std::atomic<int> wrong{0};
      group.run([&](Communicator& rank) {
        for (int round = 0; round < 20; ++round) {
          // Whole units, a last unit that is cut, and fewer units than ranks.
          const Written a(rank, round, 0, 6, 16, 96, rows), b(rank, round, 1, 7, 16, 100, rows),
              c(rank, round, 2, 2, 24, 48, rows);
          const SharedColumns parts[] = {{a.y, 6, 16}, {b.y, 7, 16}, {c.y, 2, 24}};
          rank.gather(parts, rows);
          wrong += a.wrong(round, 0, rows) + b.wrong(round, 1, rows) + c.wrong(round, 2, rows);
        }
      });
      EXPECT_EQ(wrong, 0) << ranks << " ranks, " << rows << " rows";
    }
  }
}

// All ranks write to rank 0's memory, and in some rounds rank 0 does so alone afterwards.
TEST(LocalRanks, WriteTogetherToTheMemoryOfTheFirst) {
  constexpr int kRanks = 3;
  LocalGroup group(kRanks, 1);
  std::vector<std::vector<int>> memory(kRanks, std::vector<int>(kRanks));
  std::atomic<int> wrong{0};
  group.run([&](Communicator& rank) {
    std::vector<int>& mine = memory[static_cast<size_t>(rank.rank())];
    for (int round = 0; round < 200; ++round) {
      // The interface is const because ranks lend InputMemory, which only points to the memory.
      auto& lent = *const_cast<std::vector<int>*>(static_cast<const std::vector<int>*>(rank.borrow(&mine)));
      lent[static_cast<size_t>(rank.rank())] = round;
      rank.publish();
      wrong += static_cast<int>(kRanks - std::count(lent.begin(), lent.end(), round));
      if (round % 3 == 0) continue;
      if (round % 3 == 1) rank.gather({}, 0);
      rank.take_back();
      std::ranges::fill(mine, -1);
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Then take_back() does not wait: the other rank does not call it here.
TEST(LocalRanks, LendNothingAfterAFailedStep) {
  LocalGroup group(2, 1);
  group.run([](Communicator& rank) {
    rank.borrow(nullptr);
    rank.publish();
  });
  group.ranks().give_up();
  group.ranks().reset();
  group.ranks().of(0).take_back();
}

TEST(LocalRanks, CountWhatTheyReceive) {
  LocalGroup group(3, 1);
  group.run([](Communicator& rank) {
    const Written a(rank, 0, 0, 4, 16, 64, 5);
    const SharedColumns parts[] = {{a.y, 4, 16}};
    rank.gather(parts, 5);
    rank.gather(parts, 2);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const GatherCounts& counts = group.ranks().of(rank).counts();
    const auto others = static_cast<uint64_t>(4 - share_of(4, rank, 3).size());
    EXPECT_EQ(counts.gathers, 2u);
    EXPECT_EQ(counts.bytes, (5 + 2) * others * 16 * sizeof(float));
  }
}

// The first rank's own threads wait until another rank has run one of its tiles.
TEST(LocalRanks, HelpThoseTheyWaitFor) {
  for (const int threads : {1, 2}) {
    LocalGroup group(3, threads);
    std::atomic<bool> begun{false}, helped{false};
    std::atomic<int> runs{0}, wrong{0};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto wait_for = [&](const std::atomic<bool>& flag) {
      while (!flag && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    };
    group.run([&](Communicator& rank) {
      const Written a(rank, 0, 0, 4, 16, 64, 5);
      const SharedColumns parts[] = {{a.y, 4, 16}};
      if (rank.rank() > 0) {
        wait_for(begun);
      } else {
        group.team(0).for_tiles(50, [&](int, int thread) {
          ++runs;
          begun = true;
          if (thread == threads) helped = true;
          wait_for(helped);
        });
      }
      rank.gather(parts, 5);
      wrong += a.wrong(0, 0, 5);
    });
    EXPECT_TRUE(helped);
    EXPECT_EQ(runs, 50);
    EXPECT_EQ(wrong, 0);
  }
}

TEST(LocalRanks, EndAGatherThatAnotherRankGivesUp) {
  LocalGroup group(3, 1);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> gone{0}, gathered{0};
    group.run([&](Communicator& rank) {
      const Written a(rank, round, 0, 4, 16, 64, 5);
      const SharedColumns parts[] = {{a.y, 4, 16}};
      try {
        for (int i = 0; i < round % 4; ++i, ++gathered) rank.gather(parts, 5);
        if (rank.rank() == round % 3) {
          group.ranks().give_up();
        } else {
          rank.gather(parts, 5);
          ++gathered;
        }
      } catch (const RankGone&) {
        ++gone;
      }
    });
    // The one that gives up may do so while slower ranks are in the gather before.
    EXPECT_GE(gone, 2) << round;
    group.ranks().reset();
    std::atomic<int> wrong{0};
    group.run([&](Communicator& rank) {
      const Written a(rank, round, 0, 4, 16, 64, 5);
      const SharedColumns parts[] = {{a.y, 4, 16}};
      rank.gather(parts, 5);
      wrong += a.wrong(round, 0, 5);
    });
    EXPECT_EQ(wrong, 0) << round;
  }
}

}  // namespace
}  // namespace quire
