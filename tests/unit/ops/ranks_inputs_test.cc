// Ranks of one process round the rows of a long prompt together.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"
#include "unit/ops/local_group.h"

namespace quire {
namespace {

struct Size {
  int rows, cols;
};
constexpr Size kMany{19 * kRowGroup, 288}, kFew{2 * kRowGroup, 288}, kWide{2 * kRowGroup, 2048};
constexpr int kMostCols = kWide.cols;

// Ranks with the operations and activations of their own.
class Ranks {
 public:
  Ranks(const KernelSet& kernels, int ranks) : group_(ranks, 2), first_(kernels, first_team_) {
    for (int rank = 0; rank < ranks; ++rank) {
      backends_.push_back(std::make_unique<CpuBackend>(first_, group_.team(rank), group_.ranks().of(rank)));
      operations_.push_back(backends_.back()->operations(Activations::kInt8, limits()));
    }
  }
  static OperationLimits limits() {
    return {.max_rows = kMany.rows,
            .max_positions = 1,
            .inputs = {{kMany.rows, kMany.cols}, {kWide.rows, kWide.cols}},
            .forms = {.int8_rows = true, .transforms = true}};
  }
  void run(const std::function<void(int rank, Operations&)>& work) {
    group_.run([&](const Communicator& of) { work(of.rank(), *operations_[static_cast<size_t>(of.rank())]); });
  }

 private:
  testing::LocalGroup group_;
  Team first_team_{2};
  CpuBackend first_;
  std::vector<std::unique_ptr<CpuBackend>> backends_;
  std::vector<std::unique_ptr<Operations>> operations_;
};

class RanksInputs : public ::testing::TestWithParam<const KernelSet*> {
 protected:
  RanksInputs() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& x : numbers_) x = normal(random);
    plain_.weight = changed_.weight = describe_packed(TensorType::F32, kPanel, kMostCols);
    InputTransform transform;
    for (int i = 0; i < kMostCols; ++i) transform.factors.push_back(1 + static_cast<float>(i) / kMostCols);
    changed_.transform = std::make_shared<InputTransform>(transform);
  }

  Rows rows(Size size) { return {numbers_.data(), size.cols, static_cast<size_t>(size.cols)}; }

  // The bytes that linears read: one without a transform alone, whose norm is taken while rounding, then both.
  std::vector<std::byte> prepared(Operations& operations, const NormView& norm, Activations form, Size size) {
    std::vector<std::byte> bytes;
    const auto append = [&](const Inputs& inputs, const Linear& w) {
      const Inputs::Entry& entry = inputs.of(form, w);
      bytes.insert(bytes.end(), entry.data, entry.data + static_cast<size_t>(size.rows) * entry.stride);
    };
    append(operations.prepare(rows(size), norm, size.rows, {&plain_}, form), plain_);
    const Inputs both = operations.prepare(rows(size), norm, size.rows, {&plain_, &changed_}, form);
    append(both, plain_);
    append(both, changed_);
    return bytes;
  }

  std::vector<float> numbers_ = std::vector<float>(size_t{kMany.rows} * kMany.cols);
  Linear plain_, changed_;
};

// In between, each rank prepares few inputs in its own memory. Rank 0's is the one that all ranks have just read.
TEST_P(RanksInputs, AreThoseOfOneRank) {
  Team team(2);
  CpuBackend alone(*GetParam(), team);
  const std::vector<float> weight(kMostCols, 1.5f);
  const NormView rms{NormKind::kRms, 1e-5f, weight.data()}, layer{NormKind::kLayer, 1e-5f, weight.data()};
  for (const NormView& norm : {NormView{}, rms, layer}) {
    for (const Activations form :
         {Activations::kInt8, Activations::kInt8x2, Activations::kInt8Row, Activations::kBf16, Activations::kF32}) {
      for (const Size size : {kMany, kFew, kWide}) {
        const auto twice = [&](Operations& operations) {
          const std::vector<std::byte> first = prepared(operations, norm, form, size);
          prepared(operations, norm, form, kFew);
          return std::pair(first, prepared(operations, norm, form, size));
        };
        // In fresh memory, because nobody writes the bytes between rows.
        const auto one = twice(*alone.operations(Activations::kInt8, Ranks::limits()));
        Ranks ranks(*GetParam(), 3);
        std::vector<std::pair<std::vector<std::byte>, std::vector<std::byte>>> all(3);
        ranks.run([&](int rank, Operations& operations) { all[static_cast<size_t>(rank)] = twice(operations); });
        for (const auto& of_rank : all)
          EXPECT_EQ(of_rank, one) << static_cast<int>(form) << ", " << size.rows << " rows of " << size.cols;
      }
    }
  }
}

// Each rank rounds few inputs by itself, which is faster than waiting for the others.
TEST_P(RanksInputs, AreInOneMemoryIfThereAreMany) {
  Ranks ranks(*GetParam(), 3);
  const auto memories = [&](Size size) {
    std::vector<const std::byte*> memory(3);
    ranks.run([&](int rank, Operations& operations) {
      const Inputs inputs = operations.prepare(rows(size), {}, size.rows, {&plain_, &changed_}, Activations::kInt8);
      memory[static_cast<size_t>(rank)] = inputs.of(Activations::kInt8, changed_).data;
    });
    return std::set<const std::byte*>(memory.begin(), memory.end()).size();
  };
  EXPECT_EQ(memories(kMany), 1u);
  EXPECT_EQ(memories(kFew), 3u);
  EXPECT_EQ(memories(kWide), 1u);  // though one rank has no rows
}

INSTANTIATE_TEST_SUITE_P(All, RanksInputs, ::testing::ValuesIn(available_kernels().begin(), available_kernels().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace quire
