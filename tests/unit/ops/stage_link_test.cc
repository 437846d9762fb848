// Rows cross the borders between stages as they are: those of threads, and those of processes.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "fenced/fenced_backend.h"
#include "ops/communicator.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/local_stages.h"
#include "ops/process_stages.h"
#include "unit/ops/thread_group.h"

namespace quire {
namespace {

constexpr int kStages = 3, kLinkRows = 40;
constexpr int kPartCols[] = {5, 8};

// Rows of two parts, with a stride of their own.
struct BorderRows {
  std::vector<std::vector<float>> memory;
  std::vector<Rows> parts;

  BorderRows() {
    for (const int cols : kPartCols) {
      const auto stride = static_cast<size_t>(cols + 3);
      parts.push_back({memory.emplace_back(kLinkRows * stride, -1.0f).data(), cols, stride});
    }
  }
  // f(number, where it is) for all numbers of `rows` rows, the first of which is row `first` of the step.
  template <class F>
  void for_each(int first, int rows, F f) {
    for (size_t part = 0; part < parts.size(); ++part)
      for (int row = 0; row < rows; ++row)
        for (int col = 0; col < parts[part].cols; ++col)
          f(static_cast<float>((static_cast<int>(part) * 100 + first + row) * 100 + col), parts[part].row(row)[col]);
  }
};

// Steps of a stage: what comes from the first goes through all. Returns how many numbers were wrong.
int pass_steps(int stage, StageLink& link) {
  int wrong = 0;
  for (int step = 0; step < 20; ++step) {
    for (const auto& [first, rows] : {std::pair{0, 1}, {1, 7}, {8, 32}}) {
      BorderRows border;
      if (stage == 0) {
        border.for_each(first, rows, [&](float number, float& to) { to = number + static_cast<float>(step); });
      } else {
        link.receive(border.parts, first, rows);
        border.for_each(first, rows,
                        [&](float number, float& is) { wrong += is != number + static_cast<float>(step); });
      }
      if (stage < kStages - 1) link.send(border.parts, first, rows);
    }
  }
  return wrong;
}

void run_stages(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int stage = 0; stage < kStages; ++stage) threads.emplace_back(work, stage);
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessStages, HandRowsOnAsTheyAre) {
  testing::ThreadGroup group(kStages);
  run_stages([&](int stage) {
    const auto member = group.of(stage);
    ProcessStages link(*member);
    EXPECT_EQ(pass_steps(stage, link), 0);
    EXPECT_EQ(link.sent_bytes(), stage < kStages - 1 ? 20 * kLinkRows * 13 * sizeof(float) : 0);
  });
}

// Stages of one process end each step together.
TEST(LocalStages, HandRowsOnAsTheyAre) {
  const int widths[] = {13, 13};
  Team team(1);
  CpuBackend cpu("auto", team);
  Backend* const backends[] = {&cpu, &cpu, &cpu};
  for (const bool spins : {false, true}) {
    LocalStages stages(backends, widths, kLinkRows, spins);
    for (int step = 0; step < 20; ++step) {
      run_stages([&](int stage) {
        for (const auto& [first, rows] : {std::pair{0, 1}, {1, 7}, {8, 32}}) {
          BorderRows border;
          int wrong = 0;
          if (stage > 0) stages.of(stage).receive(border.parts, first, rows);
          border.for_each(first, rows, [&](float number, float& x) {
            if (stage == 0) x = number;
            wrong += x != number;
          });
          EXPECT_EQ(wrong, 0);
          if (stage < kStages - 1) stages.of(stage).send(border.parts, first, rows);
        }
      });
    }
    EXPECT_EQ(stages.of(0).sent_bytes(), 20 * kLinkRows * 13 * sizeof(float));
    EXPECT_EQ(stages.of(2).sent_bytes(), 0u);
    EXPECT_EQ(LocalStages::memory_bytes(widths, kLinkRows), 2 * kLinkRows * 13 * sizeof(float));
  }
}

// From the host's memory to memory that the host cannot touch, and back.
TEST(LocalStages, HandRowsOnBetweenMemories) {
  Team team(1);
  CpuBackend cpu("auto", team);
  testing::FencedBackend fenced(cpu);
  Backend* const backends[] = {&cpu, &fenced, &cpu};
  const int widths[] = {13, 13};
  LocalStages stages(backends, widths, kLinkRows, false);
  BorderRows sent, received;
  std::vector<BackendMemory> memory;
  std::vector<Rows> inside;
  for (const Rows& part : sent.parts) {
    memory.emplace_back(fenced, kLinkRows * part.stride * sizeof(float));
    inside.push_back({reinterpret_cast<float*>(memory.back().data()), part.cols, part.stride});
  }
  for (const auto& [first, rows] : {std::pair{0, 1}, {1, 7}, {8, 32}}) {
    sent.for_each(first, rows, [](float number, float& to) { to = number; });
    stages.of(0).send(sent.parts, first, rows);
    stages.of(1).receive(inside, first, rows);
    stages.of(1).send(inside, first, rows);
    stages.of(2).receive(received.parts, first, rows);
    int wrong = 0;
    received.for_each(first, rows, [&](float number, float& is) { wrong += is != number; });
    EXPECT_EQ(wrong, 0) << first;
  }
}

TEST(LocalStages, EndWaitsOnceOneHasGivenUp) {
  const int widths[] = {13, 13};
  Team team(1);
  CpuBackend cpu("auto", team);
  Backend* const backends[] = {&cpu, &cpu, &cpu};
  LocalStages stages(backends, widths, kLinkRows, false);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> gone{0};
    run_stages([&](int stage) {
      BorderRows border;
      if (stage == 0) return stages.give_up();
      try {
        stages.of(stage).receive(border.parts, 0, 1);
      } catch (const RankGone&) {
        ++gone;
      }
    });
    EXPECT_EQ(gone, 2);
    stages.reset();
    run_stages([&](int stage) {
      BorderRows border;
      if (stage > 0) stages.of(stage).receive(border.parts, 0, 1);
      if (stage < kStages - 1) stages.of(stage).send(border.parts, 0, 1);
    });
  }
}

}  // namespace
}  // namespace quire
