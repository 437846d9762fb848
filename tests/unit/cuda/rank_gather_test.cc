// Ranks on emulated devices: what each computes of an operation, and how it gets the rest.
#include "cuda/ranks/rank_gather.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/emulated/device.h"
#include "cuda/linear/linear.h"
#include "cuda/ranks/host_exchange.h"
#include "cuda/rows.h"
#include "cuda/stream.h"
#include "error_of.h"
#include "unit/cuda/in_ranks.h"
#include "unit/cuda/placed.h"

namespace quire::cuda {
namespace {

using testing::PlacedMatrix;
using testing::PlacedRows;
using testing::run_in_ranks;

// Emulated devices with streams that know each other.
class Ranks {
 public:
  explicit Ranks(int ranks, size_t block_bytes = RankGather::kBytes) {
    std::vector<Device*> all;
    for (int rank = 0; rank < ranks; ++rank)
      all.push_back(devices_.emplace_back(std::make_unique<EmulatedDevice>()).get());
    exchange_ = std::make_unique<HostExchange>(all);
    received_.resize(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      const auto i = static_cast<size_t>(rank);
      gathers_.push_back(std::make_unique<RankGather>(
          *devices_[i], RankLink{exchange_.get(), {rank, ranks}, &received_[i]}, block_bytes));
      streams_.push_back(std::make_unique<Stream>(*devices_[i], true, 0, gathers_.back().get()));
    }
  }

  int size() const { return static_cast<int>(devices_.size()); }
  EmulatedDevice& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  RankGather& gather(int rank) { return *gathers_[static_cast<size_t>(rank)]; }
  Stream& stream(int rank) { return *streams_[static_cast<size_t>(rank)]; }
  const GatherCounts& received(int rank) const { return received_[static_cast<size_t>(rank)]; }

  // What a rank has thrown. The ranks can go on afterwards.
  template <class Work>
  std::exception_ptr run(const Work& work) {
    const auto step = [&](int rank) {
      try {
        work(rank);
      } catch (...) {
        stream(rank).discard();
        throw;
      }
    };
    const std::exception_ptr error = run_in_ranks(size(), step, [this] { exchange_->give_up(); });
    if (!error) return nullptr;
    exchange_->reset();
    return error;
  }

 private:
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::unique_ptr<HostExchange> exchange_;
  std::vector<GatherCounts> received_;
  std::vector<std::unique_ptr<RankGather>> gathers_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

// Columns that all ranks agree on.
float number_at(int row, int col) { return static_cast<float>(1000 * row + col); }

// Each rank has its units' numbers, and -1 elsewhere.
std::vector<float> own_numbers(int rows, int cols, const SharedColumns& part, RankNumber number) {
  std::vector<float> x(static_cast<size_t>(rows * cols), -1.0f);
  const Share own = part.columns_of(number.share(part.units));
  for (int row = 0; row < rows; ++row)
    for (int col = own.begin; col < own.end; ++col) x[static_cast<size_t>(row * cols + col)] = number_at(row, col);
  return x;
}

// Uneven shares, empty ones, a last unit that is not whole, and two parts at once; three steps, of which the last runs as a graph.
TEST(CudaRankGather, BringsTheColumnsOfAllRanks) {
  constexpr int kRows = 5, kCols = 75, kWide = 40;
  for (const int count : {2, 3, 7}) {
    Ranks ranks(count);
    const auto error = ranks.run([&](int rank) {
      SharedColumns panels{{}, 5, 16}, heads{{}, 4, 10};
      panels.y.cols = kCols, heads.y.cols = kWide;
      const RankNumber number{rank, count};
      for (int step = 0; step < 3; ++step) {
        PlacedRows x(ranks.device(rank), kRows, kCols, own_numbers(kRows, kCols, panels, number)),
            y(ranks.device(rank), kRows, kWide, own_numbers(kRows, kWide, heads, number));
        panels.y = x.rows(), heads.y = y.rows();
        const SharedColumns parts[] = {panels, heads};
        ranks.gather(rank).gather(ranks.stream(rank), parts, kRows);
        ranks.stream(rank).finish();
        const std::vector<float> got = x.values(), wide = y.values();
        for (int row = 0; row < kRows; ++row) {
          for (int col = 0; col < kCols; ++col)
            ASSERT_EQ(got[static_cast<size_t>(row * kCols + col)], number_at(row, col))
                << count << " " << row << " " << col;
          for (int col = 0; col < kWide; ++col)
            ASSERT_EQ(wide[static_cast<size_t>(row * kWide + col)], number_at(row, col))
                << count << " " << row << " " << col;
        }
      }
    });
    EXPECT_FALSE(error);
    EXPECT_EQ(ranks.received(0).gathers, 3u);
    const Share panels = share_of(5, 0, count), heads = share_of(4, 0, count);
    EXPECT_EQ(ranks.received(0).bytes,
              3u * kRows * 4 * static_cast<size_t>(kCols - 16 * panels.size() + kWide - 10 * heads.size()));
  }
}

// More than the blocks hold goes in several rounds.
TEST(CudaRankGather, CutsRowsThatDoNotFit) {
  constexpr int kRows = 11, kCols = 64;
  Ranks ranks(2, 4 * kCols * sizeof(float));  // four rows
  const auto error = ranks.run([&](int rank) {
    SharedColumns part{{}, 4, 16};
    part.y.cols = kCols;
    PlacedRows x(ranks.device(rank), kRows, kCols, own_numbers(kRows, kCols, part, {rank, 2}));
    part.y = x.rows();
    ranks.gather(rank).gather(ranks.stream(rank), {&part, 1}, kRows);
    ranks.stream(rank).finish();
    EXPECT_EQ(ranks.device(rank).counters().at("gathered_columns").launches, 3u);
    const std::vector<float> got = x.values();
    for (int row = 0; row < kRows; ++row)
      for (int col = 0; col < kCols; ++col)
        ASSERT_EQ(got[static_cast<size_t>(row * kCols + col)], number_at(row, col)) << row << " " << col;
    SharedColumns wide{{nullptr, 16 * kCols, 16 * kCols}, 64, 16};
    EXPECT_NE(error_of([&] {
                ranks.gather(rank).gather(ranks.stream(rank), {&wide, 1}, 1);
              }).find("MiB a row"),
              std::string::npos);
  });
  EXPECT_FALSE(error);
}

// A rank that fails ends the step of all; what they had recorded is forgotten, and the next step is whole, whatever it begins with.
TEST(CudaRankGather, GoesOnAfterARankHasFailed) {
  constexpr int kRows = 2, kCols = 32, kNone = -1;
  Ranks ranks(2);
  const auto step = [&](int rank, int failing, int units) {
    SharedColumns part{{}, units, kCols / units};
    part.y.cols = kCols;
    PlacedRows x(ranks.device(rank), kRows, kCols, own_numbers(kRows, kCols, part, {rank, 2}));
    part.y = x.rows();
    ranks.gather(rank).gather(ranks.stream(rank), {&part, 1}, kRows);
    if (rank == failing) throw Error(ErrorKind::kResource, "no memory");
    ranks.stream(rank).finish();
    EXPECT_EQ(x.values()[0], number_at(0, 0));
    EXPECT_EQ(x.values()[kCols - 1], number_at(0, kCols - 1));
  };
  const auto run = [&](int failing, int units) { return ranks.run([&](int rank) { step(rank, failing, units); }); };
  for (const int units : {1, 2}) {  // with one unit, the first rank has nothing to send
    for (const int failing : {0, 1}) {
      EXPECT_FALSE(run(kNone, units));
      const auto error = run(failing, units);
      ASSERT_TRUE(error);
      EXPECT_EQ(error_of([&] { std::rethrow_exception(error); }), "no memory");
      EXPECT_FALSE(run(kNone, units));
      EXPECT_TRUE(run(failing, units));
      EXPECT_FALSE(ranks.run([&](int rank) { ranks.stream(rank).finish(); }));
    }
  }
  // A lost device does not come back.
  ranks.device(1).inject({.launch = 0, .allocation = {}});
  EXPECT_TRUE(run(kNone, 2));
  EXPECT_TRUE(run(kNone, 2));
}

// Each rank computes panels of its own, or all where that is as fast, and has all results with the bits of one device.
TEST(CudaRankGather, SharesTheOutputsOfLinears) {
  std::mt19937 random(1);
  for (const int outputs : {16, 70, 160}) {
    constexpr int kCols = 64, kRows = 3;
    const testing::OwnedMatrix some = testing::random_matrix(TensorType::Q8_0, outputs, kCols, random);
    const std::vector<float> x = testing::random_rows(kRows, kCols, random);
    const auto run = [&](Device& device, Stream& stream) {
      const PlacedMatrix w(device, some.matrix);
      const Linear linear{.weight = w.matrix};
      const PlacedRows in(device, kRows, kCols, x), out(device, kRows, outputs, -1.0f);
      InputBuffers buffers(device, std::vector<InputBuffers::Need>{{kRows, kCols}}, {});
      const Inputs inputs = buffers.prepare(stream, Activations::kBf16, in.rows(), {}, kRows, {&linear}, {});
      const Projection p{.w = &linear, .y = out.rows()};
      project(stream, inputs, {&p, 1}, kRows, Activations::kBf16);
      stream.finish();
      return out.values();
    };
    EmulatedDevice alone;
    Stream stream(alone, false);
    const std::vector<float> expected = run(alone, stream);
    Ranks ranks(3);
    EXPECT_FALSE(
        ranks.run([&](int rank) { EXPECT_EQ(run(ranks.device(rank), ranks.stream(rank)), expected) << outputs; }));
  }
}

}  // namespace
}  // namespace quire::cuda
