// Clusters of blocks on the emulated device: what their barriers and copies do, and the mistakes that it finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/alphabet/alphabet.h"
#include "cuda/emulated/device.h"
#include "unit/cuda/device_values.h"
#include "unit/cuda/planted.h"

namespace quire::cuda {
namespace {

using ::testing::HasSubstr;

constexpr int kArrivalsAt = 16384;

class EmulatedClusters : public ::testing::Test {
 protected:
  // Two blocks of two warps.
  static constexpr LaunchShape kShape{.x = 2, .threads = 64, .shared_bytes = kArrivalsAt + 64, .cluster = 2};

  std::string fault(const auto& body, const LaunchShape& shape = kShape) { return fault_of(device_, shape, body); }
  static Shared<uint64_t> arrivals(int number = 0) { return shared<uint64_t>(kArrivalsAt) + number; }

  EmulatedDevice device_;
};

TEST_F(EmulatedClusters, NumberTheirBlocks) {
  const OnDevice<int> seen(device_, 12);
  const auto to = Global<int>(seen.data());
  run_alone(device_, {.x = 6, .y = 2, .threads = 32, .cluster = 2}, planted([=] {
              if (thread() == 0) to[block_y() * 6 + block_x()] = 10 * block_x() + block_of_cluster();
            }));
  EXPECT_EQ(seen.values(), (std::vector<int>{0, 11, 20, 31, 40, 51, 0, 11, 20, 31, 40, 51}));
  EXPECT_EQ(device_.counters().at("planted").blocks, 12U);
}

TEST_F(EmulatedClusters, RefuseShapesThatTheyDoNotFit) {
  const auto nothing = [] {};
  EXPECT_THAT(fault(nothing, {.x = 3, .threads = 32, .cluster = 2}), HasSubstr("clusters of 2 blocks in a grid of 3"));
  EXPECT_THAT(fault(nothing, {.x = 9, .threads = 32, .cluster = 9}), HasSubstr("a cluster has 1 to 8 blocks"));
  EXPECT_THAT(fault(nothing, {.x = 2, .threads = 48, .cluster = 2}), HasSubstr("takes whole warps"));
  EXPECT_THAT(fault(nothing, {.x = 8, .threads = 512, .cluster = 8}), HasSubstr("64 of all blocks together"));
}

// Rows of a matrix, which has a row and some columns less than a box: block b fetches rows 8 b .. 8 b + 7 for both blocks.
struct Boxes {
  static constexpr const char* kName = "boxes";
  static constexpr int kThreads = 64;
  BoxMap map;
  Global<uint16_t> to;  // [blocks][16][64]
  DEVICE void operator()() const {
    const auto all = shared<uint8_t>(0);
    const auto barrier = shared<uint64_t>(kArrivalsAt);
    if (thread() == 0) init_arrivals(barrier, 1);
    sync_cluster();
    const int own = block_of_cluster();
    if (thread() == 0) {
      arrive_expecting(barrier, 2048);
      copy_box(map, 64, 8 * own, all + own * 1024, barrier, 3);
    }
    wait_arrivals(barrier, 0);
    for (int i = thread(); i < 16 * 64; i += 64) {
      const int row = i / 64, column = i % 64, piece = column / 8 ^ row % 8;
      to[own * 1024 + i] = shared<const uint16_t>(0)[row * 64 + piece * 8 + column % 8];
    }
    sync_cluster();
  }
};

TEST_F(EmulatedClusters, FetchBoxesForEachOther) {
  const int rows = 15, columns = 122, stride = 128;  // numbers
  std::vector<uint16_t> matrix(static_cast<size_t>(rows * stride), 0xFFFF);
  for (int i = 0; i < rows * columns; ++i)
    matrix[static_cast<size_t>(i / columns * stride + i % columns)] = static_cast<uint16_t>(i + 1);
  const OnDevice<uint16_t> from(device_, matrix), to(device_, 2 * 16 * 64);
  const BoxMap map =
      device_.map_boxes(reinterpret_cast<const std::byte*>(from.data()), rows, columns, 2 * size_t{stride}, 8);
  run_alone(device_, kShape, Boxes{map, to.data()});
  const std::vector<uint16_t> got = to.values();
  for (int i = 0; i < 2 * 16 * 64; ++i) {
    const int row = i / 64 % 16, column = 64 + i % 64;
    const int expected = row < rows && column < columns ? row * columns + column + 1 : 0;
    ASSERT_EQ(got[static_cast<size_t>(i)], expected) << "block " << i / 1024 << " row " << row << " column " << column;
  }
  // What the matrix has is read once.
  EXPECT_EQ(device_.counters().at("boxes").global_read, static_cast<uint64_t>(rows * (columns - 64) * 2));
}

TEST_F(EmulatedClusters, RefuseMapsThatTheHardwareDoes) {
  const OnDevice<uint16_t> x(device_, 4096);
  const auto* const at = reinterpret_cast<const std::byte*>(x.data());
  EXPECT_THROW(device_.map_boxes(at, 4, 64, 136, 4), DeviceFault);
  EXPECT_THROW(device_.map_boxes(at + 8, 4, 64, 128, 4), DeviceFault);
  EXPECT_THROW(device_.map_boxes(at, 4, 64, 128, 257), DeviceFault);
}

// A number goes from block to block and back. parts: which of three waits and arrivals are left out.
std::string exchange_fault(auto& test, int without) {
  return test([without] {
    const auto value = shared<int>(0);
    const auto filled = shared<uint64_t>(kArrivalsAt), freed = filled + 1;
    if (thread() == 0) {
      init_arrivals(filled, 1);
      init_arrivals(freed, 64);
    }
    if (without != 0) sync_cluster();
    for (int round = 0; round < 3; ++round) {
      if (thread() == 0) {
        if (round > 0 && without != 1) wait_arrivals(freed, (round - 1) % 2);
        value[0] = round;
        arrive(filled, block_of_cluster());
      }
      if (without != 2) wait_arrivals(filled, round % 2);
      if (value[0] != round && without < 0) return;
      if (without != 3) arrive(freed, block_of_cluster());
    }
    sync_cluster();
  });
}

TEST_F(EmulatedClusters, OrderWhatArrivalsOrder) {
  auto run = [&](const auto& body) { return fault(body); };
  EXPECT_EQ(exchange_fault(run, -1), "");
  EXPECT_THAT(exchange_fault(run, 0), HasSubstr("no barrier lies between that and init_arrivals()"));
  EXPECT_THAT(exchange_fault(run, 1), HasSubstr("waiting for wait_arrivals() at emulated_clusters_test.cc"));
  EXPECT_THAT(exchange_fault(run, 2), HasSubstr("it reads byte 0 of shared memory"));
  EXPECT_THAT(exchange_fault(run, 3), HasSubstr("waiting for wait_arrivals() at emulated_clusters_test.cc"));
}

TEST_F(EmulatedClusters, FindWrongArrivals) {
  EXPECT_THAT(fault([] { arrive(arrivals(), 0); }), HasSubstr("for which nobody has called init_arrivals()"));
  EXPECT_THAT(fault([] {
                if (thread() == 0) init_arrivals(arrivals(), 0);
              }),
              HasSubstr("it takes 1 or more"));
  EXPECT_THAT(fault([] {
                if (thread() < 2) init_arrivals(arrivals(), 1);
              }),
              HasSubstr("a second time"));
  EXPECT_THAT(fault([] {
                if (thread() == 0) init_arrivals(arrivals(), 2);
                sync_cluster();
                if (thread() == 0) arrive_expecting(arrivals(), 16);
                if (thread() == 0) arrive(arrivals(), block_of_cluster());
                if (thread() == 0) arrive(arrivals(), block_of_cluster());
                sync_cluster();
              }),
              HasSubstr("an arrival beyond the 2"));
  EXPECT_THAT(fault([] {
                if (thread() == 0) init_arrivals(arrivals(), 1);
                sync_cluster();
                if (thread() == 0) arrive(arrivals(), 2);
              }),
              HasSubstr("block 2 of a cluster of 2"));
  // The first block arrives at the second one, which does not wait for it.
  EXPECT_THAT(fault([] {
                if (thread() == 0) init_arrivals(arrivals(), 1);
                sync_cluster();
                if (block_of_cluster() == 1) return;
                sync_block();  // the other ends meanwhile
                for (int i = 0; i < 100; ++i) sync_block();
                if (thread() == 0) arrive(arrivals(), 1);
              }),
              HasSubstr("block 1 of the cluster, whose threads have ended: sync_cluster() must come before"));
}

// What a copy of a box needs around it.
TEST_F(EmulatedClusters, FindCopiesThatAreReadOrOverwrittenEarly) {
  const OnDevice<uint16_t> x(device_, 8 * 64);
  const BoxMap map = device_.map_boxes(reinterpret_cast<const std::byte*>(x.data()), 8, 64, 128, 8);
  const auto copies = [map](bool waits, int expected, int to, uint32_t blocks) {
    return [=] {
      const auto all = shared<uint8_t>(0);
      if (thread() == 0) init_arrivals(arrivals(), 1);
      sync_cluster();
      if (thread() == 0) {
        arrive_expecting(arrivals(), expected);
        if (block_of_cluster() == 0) copy_box(map, 0, 0, all + to, arrivals(), blocks);
      }
      if (waits) wait_arrivals(arrivals(), 0);
      if (thread() == 40 && block_of_cluster() == 0) (void)load<4>(all + to);
      sync_cluster();
    };
  };
  EXPECT_EQ(fault(copies(true, 1024, 0, 3)), "");
  EXPECT_THAT(fault(copies(false, 1024, 0, 3)), HasSubstr("it reads byte 0 of shared memory, "));
  EXPECT_THAT(fault(copies(true, 2048, 0, 3)), HasSubstr("waiting for wait_arrivals()"));
  EXPECT_THAT(fault(copies(true, 1024, 0, 1)), HasSubstr("waiting for wait_arrivals()"));
  EXPECT_THAT(fault(copies(true, 1024, 512, 3)), HasSubstr("copy_box() to byte 512"));
  EXPECT_THAT(fault(copies(true, 1024, 0, 7)), HasSubstr("copy_box() to blocks 7"));
  // Again, while the other block may still read what came first.
  EXPECT_THAT(fault([map] {
                const auto all = shared<uint8_t>(0);
                if (thread() == 0) init_arrivals(arrivals(), 1);
                sync_cluster();
                for (int round = 0; round < 2; ++round) {
                  if (thread() == 0) {
                    arrive_expecting(arrivals(), 1024);
                    if (block_of_cluster() == 0) copy_box(map, 0, 0, all, arrivals(), 3);
                  }
                  wait_arrivals(arrivals(), round);
                  if (block_of_cluster() == 1) (void)load<4>(all);
                }
                sync_cluster();
              }),
              HasSubstr("byte 0 of shared memory, "));
  // Twice to the same place, with nothing between.
  EXPECT_THAT(fault([map] {
                const auto all = shared<uint8_t>(0);
                if (thread() == 0) init_arrivals(arrivals(), 2);
                sync_cluster();
                if (thread() % 32 == 0) {
                  arrive_expecting(arrivals(), 1024);
                  if (block_of_cluster() == 0) copy_box(map, 0, 0, all, arrivals(), 3);
                }
                wait_arrivals(arrivals(), 0);
                sync_cluster();
              }),
              HasSubstr("copies to byte 0 of shared memory, to which thread 0 of block 0 of the cluster copies"));
}

}  // namespace
}  // namespace quire::cuda
