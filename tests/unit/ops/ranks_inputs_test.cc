// Ranks of one process round the rows of a long prompt together.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/local_ranks.h"

namespace quire {
namespace {

constexpr int kCols = 288, kMany = 19 * kRowGroup, kFew = 2 * kRowGroup;

// Backends of some ranks, each with the operations and activations of its own.
class Ranks {
 public:
  Ranks(const KernelSet& kernels, int ranks) : first_(kernels, first_team_) {
    std::vector<Team*> teams;
    for (int rank = 0; rank < ranks; ++rank) teams.push_back(teams_.emplace_back(std::make_unique<Team>(2)).get());
    local_ = std::make_unique<LocalRanks>(teams);
    for (int rank = 0; rank < ranks; ++rank) {
      backends_.push_back(std::make_unique<CpuBackend>(first_, *teams[static_cast<size_t>(rank)], local_->of(rank)));
      operations_.push_back(backends_.back()->operations(Activations::kInt8, limits()));
    }
  }
  static OperationLimits limits() {
    return {.max_rows = kMany,
            .max_positions = 1,
            .inputs = {{kMany, kCols}},
            .forms = {.int8_rows = true, .transforms = true}};
  }
  const Communicator& of(int rank) const { return local_->of(rank); }
  void run(const std::function<void(int rank, Operations&)>& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < local_->size(); ++rank)
      threads.emplace_back([&, rank] { work(rank, *operations_[static_cast<size_t>(rank)]); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  Team first_team_{2};
  CpuBackend first_;
  std::vector<std::unique_ptr<Team>> teams_;
  std::unique_ptr<LocalRanks> local_;
  std::vector<std::unique_ptr<CpuBackend>> backends_;
  std::vector<std::unique_ptr<Operations>> operations_;
};

class RanksInputs : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  RanksInputs() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& x : numbers_) x = normal(random);
    plain_.weight = changed_.weight = describe_packed(TensorType::F32, kPanel, kCols);
    InputTransform transform;
    for (int i = 0; i < kCols; ++i) transform.factors.push_back(1 + static_cast<float>(i) / kCols);
    changed_.transform = std::make_shared<InputTransform>(transform);
  }
  Rows rows() { return {numbers_.data(), kCols, kCols}; }

  // The bytes that both linears read, one after the other.
  std::vector<std::byte> prepared(Operations& operations, const NormView& norm, Activations form, int rows) {
    const Inputs inputs = operations.prepare(this->rows(), norm, rows, {&plain_, &changed_}, form);
    std::vector<std::byte> bytes;
    for (const Linear* w : {&plain_, &changed_}) {
      const Inputs::Entry& entry = inputs.of(form, *w);
      bytes.insert(bytes.end(), entry.data, entry.data + static_cast<size_t>(rows) * entry.stride);
    }
    return bytes;
  }

  std::vector<float> numbers_ = std::vector<float>(size_t{kMany} * kCols);
  Linear plain_, changed_;
};

TEST_P(RanksInputs, AreThoseOfOneRank) {
  Team team(2);
  CpuBackend alone(*GetParam(), team);
  const std::unique_ptr<Operations> expected = alone.operations(Activations::kInt8, Ranks::limits());
  Ranks ranks(*GetParam(), 3);
  const std::vector<float> weight(kCols, 1.5f);
  const NormView rms{NormKind::kRms, 1e-5f, weight.data()}, layer{NormKind::kLayer, 1e-5f, weight.data()};
  for (const NormView& norm : {NormView{}, rms, layer}) {
    for (const Activations form :
         {Activations::kInt8, Activations::kInt8x2, Activations::kInt8Row, Activations::kBf16, Activations::kF32}) {
      for (const int rows : {kMany, kFew, kMany}) {
        const std::vector<std::byte> one = prepared(*expected, norm, form, rows);
        std::vector<std::vector<std::byte>> all(3);
        ranks.run([&](int rank, Operations& operations) {
          all[static_cast<size_t>(rank)] = prepared(operations, norm, form, rows);
        });
        for (const std::vector<std::byte>& bytes : all)
          EXPECT_EQ(bytes, one) << static_cast<int>(form) << ", " << rows << " rows";
      }
    }
  }
}

// Few rows are rounded sooner than they are copied.
TEST_P(RanksInputs, AreGatheredIfThereAreMany) {
  Ranks ranks(*GetParam(), 2);
  const auto gathers = [&](int rows) {
    const uint64_t before = ranks.of(0).counts().gathers;
    ranks.run([&](int, Operations& operations) { prepared(operations, {}, Activations::kInt8, rows); });
    return ranks.of(0).counts().gathers - before;
  };
  EXPECT_EQ(gathers(kFew), 0u);
  EXPECT_EQ(gathers(kMany), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, RanksInputs, ::testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
