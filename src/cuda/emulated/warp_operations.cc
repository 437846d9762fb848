// The operations of all lanes of a warp: each lane's arguments -> each lane's results.
#include <array>
#include <cstring>
#include <string>

#include "cuda/alphabet/emulated_numbers.h"
#include "cuda/emulated/access.h"
#include "cuda/emulated/block.h"
#include "cuda/emulated/machine.h"
#include "cuda/emulated/matrices.h"

namespace quire::cuda::emulated {
namespace {

using LaneArguments = std::span<void* const, kWarpLanes>;

template <class T>
T& of_lane(LaneArguments lanes, size_t lane) {
  return *static_cast<T*>(lanes[lane]);
}

void order_lanes(BlockRunner& runner, int warp, LaneArguments) {
  if (runner.checks().races) runner.shadow().clocks.sync_warp(warp);
}

void shuffle_lanes(BlockRunner&, int, LaneArguments lanes) {
  std::array<uint32_t, kWarpLanes> values;
  for (size_t i = 0; i < kWarpLanes; ++i) values[i] = of_lane<Shuffle>(lanes, i).value;
  for (size_t i = 0; i < kWarpLanes; ++i) {
    auto& lane = of_lane<Shuffle>(lanes, i);
    if (lane.from >= 0 && lane.from < kWarpLanes) lane.value = values[static_cast<size_t>(lane.from)];
  }
}

void count_votes(BlockRunner&, int, LaneArguments lanes) {
  uint32_t votes = 0;
  for (size_t i = 0; i < kWarpLanes; ++i) votes |= uint32_t{of_lane<Ballot>(lanes, i).vote} << i;
  for (size_t i = 0; i < kWarpLanes; ++i) of_lane<Ballot>(lanes, i).votes = votes;
}

LaneWords4 words_of_a(LaneArguments lanes) {
  LaneWords4 words;
  for (size_t i = 0; i < kWarpLanes; ++i) std::memcpy(&words[i], of_lane<MatrixProduct>(lanes, i).a, sizeof words[i]);
  return words;
}

void multiply_floats(LaneArguments lanes, float (*low)(uint32_t), float (*high)(uint32_t)) {
  const auto a = rows_of(words_of_a(lanes), low, high);
  std::array<float, 16 * 8> b, d;
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    const auto& product = of_lane<MatrixProduct>(lanes, lane);
    for (size_t w = 0; w < 2; ++w) {
      b[(2 * i + 8 * w) * 8 + g] = low(product.b[w]);
      b[(2 * i + 8 * w + 1) * 8 + g] = high(product.b[w]);
      std::memcpy(&d[(g + 8 * w) * 8 + 2 * i], static_cast<const float*>(product.d) + 2 * w, 2 * sizeof(float));
    }
  }
  for (size_t row = 0; row < 16; ++row) multiply_row(std::span(&a[row * 16], 16), b, std::span(&d[row * 8], 8));
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    for (size_t w = 0; w < 2; ++w)
      std::memcpy(static_cast<float*>(of_lane<MatrixProduct>(lanes, lane).d) + 2 * w, &d[(g + 8 * w) * 8 + 2 * i],
                  2 * sizeof(float));
  }
}

void multiply_integers(LaneArguments lanes) {
  const auto a = byte_rows_of(words_of_a(lanes));  // [row][k]
  std::array<std::array<int8_t, 32>, 8> b;         // [column][k]
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    for (size_t w = 0; w < 2; ++w) std::memcpy(&b[g][w * 16 + 4 * i], of_lane<MatrixProduct>(lanes, lane).b + w, 4);
  }
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    auto* d = static_cast<int32_t*>(of_lane<MatrixProduct>(lanes, lane).d);
    for (size_t j = 0; j < 4; ++j) {
      const auto& row = a[lane / 4 + j / 2 * 8];
      const auto& column = b[lane % 4 * 2 + j % 2];
      auto sum = static_cast<uint32_t>(d[j]);  // wraps around, as the instruction does
      for (size_t k = 0; k < 32; ++k) sum += static_cast<uint32_t>(static_cast<int8_t>(row[k]) * column[k]);
      d[j] = static_cast<int32_t>(sum);
    }
  }
}

void multiply_matrices(BlockRunner& runner, int, LaneArguments lanes) {
  const MatrixNumbers numbers = of_lane<MatrixProduct>(lanes, 0).numbers;
  for (size_t i = 0; i < kWarpLanes; ++i) {
    if (of_lane<MatrixProduct>(lanes, i).numbers != numbers) runner.fault("lanes multiply different types of numbers");
  }
  ++runner.counters().matrix_products;
  if (numbers == MatrixNumbers::kBfloat16) {
    multiply_floats(lanes, low_bf16, high_bf16);
  } else if (numbers == MatrixNumbers::kFloat16) {
    multiply_floats(lanes, low_f16, high_f16);
  } else {
    ++runner.counters().integer_products;
    multiply_integers(lanes);
  }
}

void load_rows(BlockRunner& runner, int, LaneArguments lanes) {
  const auto& first = of_lane<MatrixLoad>(lanes, 0);
  const size_t matrices = first.words.size();
  const bool transposed = first.transposed;
  std::array<std::array<uint16_t, 8>, kWarpLanes> rows;
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto& load = of_lane<MatrixLoad>(lanes, lane);
    if (load.words.size() != matrices || load.transposed != transposed)
      runner.fault("lanes load different numbers of matrices");
    if (lane < 8 * matrices) std::memcpy(&rows[lane], load.row, sizeof rows[lane]);
  }
  for (size_t lane = 0; lane < kWarpLanes; ++lane) {
    const size_t g = lane / 4, i = lane % 4;
    for (size_t m = 0; m < matrices; ++m) {
      const uint32_t low = transposed ? rows[8 * m + 2 * i][g] : rows[8 * m + g][2 * i];
      const uint32_t high = transposed ? rows[8 * m + 2 * i + 1][g] : rows[8 * m + g][2 * i + 1];
      of_lane<MatrixLoad>(lanes, lane).words[m] = low | high << 16;
    }
  }
}

void start_products(BlockRunner& runner, int warp, LaneArguments lanes) {
  const auto& first = of_lane<WideProduct>(lanes, 0);
  std::array<void*, kWarpLanes> registers;
  LaneWords4 a;
  for (size_t i = 0; i < kWarpLanes; ++i) {
    const auto& lane = of_lane<WideProduct>(lanes, i);
    if (lane.numbers != first.numbers || lane.b != first.b || lane.columns != first.columns || lane.add != first.add)
      runner.fault("lanes of a warp multiply by different matrices");
    registers[i] = lane.d;
    std::memcpy(&a[i], lane.a, sizeof a[i]);
  }
  const auto products = static_cast<uint64_t>(first.columns / 8);
  runner.counters().matrix_products += products;
  if (first.numbers == MatrixNumbers::kInt8) runner.counters().integer_products += products;
  runner.products(warp).start(first.numbers, registers, first.columns, first.b, first.add, a,
                              runner.shadow().clocks.past(warp));
}

struct ProductWait {
  int groups;
};
void finish_products(BlockRunner& runner, int warp, LaneArguments lanes) {
  for (const PendingProduct& product : runner.products(warp).due(of_lane<ProductWait>(lanes, 0).groups))
    check_product(product, warp);
  const int touched = runner.products(warp).wait(of_lane<ProductWait>(lanes, 0).groups, runner.shared().data());
  if (touched >= 0)
    runner.fault("lane " + std::to_string(touched) + " wrote the result of a product before wait_products()");
}

void fence_warp(BlockRunner& runner, int warp, LaneArguments) { runner.products(warp).fence(); }
void commit_warp(BlockRunner& runner, int warp, LaneArguments) { runner.products(warp).commit(); }

constexpr WarpOperation kSyncWarp{"sync_warp()", order_lanes};
constexpr WarpOperation kShuffle{"a shuffle", shuffle_lanes};
constexpr WarpOperation kBallot{"ballot()", count_votes};
constexpr WarpOperation kProduct{"a product of matrices", multiply_matrices};
constexpr WarpOperation kLoad{"load_matrices()", load_rows};
constexpr WarpOperation kFenceProducts{"fence_products()", fence_warp};
constexpr WarpOperation kStartProduct{"a product of a warpgroup", start_products};
constexpr WarpOperation kCommitProducts{"commit_products()", commit_warp};
constexpr WarpOperation kWaitProducts{"wait_products()", finish_products};

// Operations with operands need all 32 lanes.
void need_whole_warp(const WarpOperation& operation) {
  BlockRunner& runner = running_block();
  const ThreadState& state = runner.thread();
  if (state.thread / kWarpLanes * kWarpLanes + kWarpLanes > state.threads)
    runner.fault(std::string(operation.name) + " in a warp of " + std::to_string(state.threads % kWarpLanes) +
                 " lanes; it needs 32");
}

void perform_whole(const WarpOperation& operation, void* lane, const Site& site) {
  need_whole_warp(operation);
  running_block().meet(operation, lane, site);
}

}  // namespace

void wait_for_warp(Site site) { running_block().meet(kSyncWarp, nullptr, site); }
void perform(Shuffle& lane, Site site) { perform_whole(kShuffle, &lane, site); }
void perform(Ballot& lane, Site site) { perform_whole(kBallot, &lane, site); }
void perform(MatrixProduct& lane, Site site) { perform_whole(kProduct, &lane, site); }

void perform(MatrixLoad& lane, Site site) {
  BlockRunner& runner = running_block();
  if (static_cast<size_t>(runner.thread().lane()) < 8 * lane.words.size()) read_shared(lane.row, 16);
  perform_whole(kLoad, &lane, site);
}

void fence_products(Site site) { perform_whole(kFenceProducts, nullptr, site); }
void commit_products(Site site) { perform_whole(kCommitProducts, nullptr, site); }

void start_product(WideProduct& lane, Site site) {
  BlockRunner& runner = running_block();
  const ThreadState& state = runner.thread();
  if (state.threads % 128 != 0) runner.fault("a product of a warpgroup in a block of no whole warpgroups");
  if (!ProductRows::valid(lane.b))
    runner.fault("a product of a warpgroup by something that product_rows() did not make");
  if (!runner.products(state.warp()).fenced())
    runner.fault("a product of a warpgroup without fence_products() since the block began, or since wait_products()");
  perform_whole(kStartProduct, &lane, site);
}

void wait_products(int groups, Site site) {
  ProductWait lane{groups};
  perform_whole(kWaitProducts, &lane, site);
}

}  // namespace quire::cuda::emulated
