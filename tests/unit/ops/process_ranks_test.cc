#include "ops/process_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "unit/ops/thread_group.h"

namespace quire {
namespace {

float element(int part, int row, int col) { return static_cast<float>((part * 1000 + row) * 1000 + col); }

struct Part {
  int units, width, cols;
};

// Every rank writes its columns, gathers, and must then have all. Returns what the first has counted.
GatherCounts gather_everywhere(int ranks, const std::vector<Part>& parts, int rows) {
  testing::ThreadGroup group(ranks);
  std::vector<std::thread> threads;
  std::vector<GatherCounts> counts(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Team team(2);
      const auto member = group.of(rank);
      ProcessRanks communicator(*member, team);
      std::vector<std::vector<float>> memory;
      std::vector<SharedColumns> shared;
      for (int part = 0; const Part& p : parts) {
        const auto stride = static_cast<size_t>(p.cols + 3);
        float* const data = memory.emplace_back(static_cast<size_t>(rows) * stride, -1.0f).data();
        shared.push_back({{data, p.cols, stride}, p.units, p.width});
        const Share own = shared.back().columns_of(communicator.share(p.units));
        for (int row = 0; row < rows; ++row) {
          for (int col = own.begin; col < own.end; ++col) shared.back().y.row(row)[col] = element(part, row, col);
        }
        ++part;
      }
      communicator.gather(shared, rows);
      int wrong = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        for (int row = 0; row < rows; ++row) {
          for (int col = 0; col < parts[part].cols; ++col)
            wrong += shared[part].y.row(row)[col] != element(static_cast<int>(part), row, col);
        }
      }
      EXPECT_EQ(wrong, 0) << ranks << " ranks, " << rows << " rows";
      counts[static_cast<size_t>(rank)] = communicator.counts();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return counts[0];
}

TEST(ProcessRanks, GiveEveryRankTheColumnsOfAll) {
  // Uneven shares, empty ones, and a last unit that is narrower.
  const std::vector<Part> parts{{5, 16, 75}, {1, 16, 16}, {2, 8, 16}};
  for (const int ranks : {2, 3, 5}) {
    for (const int rows : {1, 2, 37}) gather_everywhere(ranks, parts, rows);
  }
}

// Rows of more bytes than a block go one by one; others as many together as fit.
TEST(ProcessRanks, GatherInBlocks) {
  const int wide = static_cast<int>(ProcessRanks::kBlockBytes / sizeof(float)) + 16;
  gather_everywhere(2, {{wide / 16, 16, wide}}, 3);
  gather_everywhere(3, {{500, 16, 8000}}, 100);
}

TEST(ProcessRanks, CountWhatTheyReceive) {
  const GatherCounts counts = gather_everywhere(2, {{4, 16, 64}}, 10);
  EXPECT_EQ(counts.gathers, 1u);
  EXPECT_EQ(counts.bytes, 10 * 32 * sizeof(float));
}

}  // namespace
}  // namespace quire
