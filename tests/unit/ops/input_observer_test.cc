// What an observer sees is what the kernels multiply.
#include "ops/input_observer.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

using Row = std::vector<float>;

// The rows that a kernel got for each matrix of weights, by their place among its inputs.
std::mutex multiplied_mutex;
std::map<const std::byte*, std::map<int, Row>> multiplied;

void record(const LinearArgs& a, int, int, int row_begin, int row_end) {
  ASSERT_EQ(a.activations, Activations::kF32);
  const std::lock_guard lock(multiplied_mutex);
  for (int row = row_begin; row < row_end; ++row) {
    const auto* blocks = reinterpret_cast<const FloatBlock*>(a.x + static_cast<size_t>(row) * a.x_stride);
    Row& inputs = multiplied[a.weights->data][row];
    inputs.clear();
    for (int col = 0; col < a.weights->cols; ++col) inputs.push_back(blocks[col / kBlockInputs].x[col % kBlockInputs]);
  }
}

class Shown : public InputObserver {
 public:
  void see(std::span<const Linear* const> linears, const Rows& x, int rows) override {
    for (const Linear* w : linears) {
      auto& of_w = rows_[w->weight.data];
      of_w.clear();  // a linear may be named twice
      for (int row = 0; row < rows; ++row) of_w.emplace_back(x.row(row), x.row(row) + x.cols);
    }
  }
  void expect_multiplied() const {
    ASSERT_FALSE(multiplied.empty());
    for (const auto& [weights, rows] : multiplied) {
      std::vector<Row> in_order;
      for (const auto& [place, row] : rows) in_order.push_back(row);
      const auto shown = rows_.find(weights);
      ASSERT_NE(shown, rows_.end());
      EXPECT_EQ(in_order, shown->second);
    }
  }
  size_t count() const { return rows_.size(); }

 private:
  std::map<const std::byte*, std::vector<Row>> rows_;
};

class Observers : public ::testing::Test {
 protected:
  static constexpr int kCols = 40, kRowCount = 21;

  Observers() {
    kernels_.linear = record;
    operations_ = backend_.operations(Activations::kF32, {.max_rows = 64,
                                                          .max_positions = 64,
                                                          .inputs = {{64, kCols}},
                                                          .forms = {.int8_rows = false, .transforms = true},
                                                          .heads = {3, kCols},
                                                          .experts = {4, 2, kCols, kCols}});
    operations_->observe_inputs(&shown_);
    multiplied.clear();
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& x : numbers_) x = normal(random);
  }

  Linear linear(std::shared_ptr<const InputTransform> transform = {}) {
    Linear w;
    w.weight = describe_packed(TensorType::F32, 16, kCols);
    memory_.emplace_back(w.weight.bytes());
    w.weight.data = memory_.back().data();
    w.transform = std::move(transform);
    return w;
  }
  static std::shared_ptr<const InputTransform> factors(float first) {
    InputTransform t;
    for (int i = 0; i < kCols; ++i) t.factors.push_back(first + static_cast<float>(i));
    return std::make_shared<InputTransform>(t);
  }
  Rows rows(size_t at = 0, int cols = kCols) { return {numbers_.data() + at * 64 * 128, cols, 128}; }

  KernelSet kernels_ = reference_kernels();
  Team team_{2};
  CpuBackend backend_{kernels_, team_};
  std::unique_ptr<Operations> operations_;
  Shown shown_;
  std::vector<LargeBuffer> memory_;
  std::vector<float> numbers_ = std::vector<float>(4 * 64 * 128);
};

TEST_F(Observers, SeeNormalisedAndTransformedRows) {
  const auto twice = factors(2);
  const Linear plain = linear(), also_plain = linear(), changed = linear(twice), also_changed = linear(twice),
               other = linear(factors(3));
  const std::vector<float> weight(kCols, 1.5f);
  const NormView rms{NormKind::kRms, 1e-5f, weight.data()}, layer{NormKind::kLayer, 1e-5f, weight.data()};
  for (const NormView& norm : {NormView{}, rms, layer}) {
    for (const bool transforms : {false, true}) {  // an RMS norm is fused with the rounding only without them
      const Inputs in = transforms
                            ? operations_->prepare(rows(), norm, kRowCount,
                                                   {&plain, &changed, &also_plain, &also_changed, &other, &plain})
                            : operations_->prepare(rows(), norm, kRowCount, {&plain, &also_plain});
      multiplied.clear();
      operations_->project(in, Projection{.w = &plain, .y = rows(1)}, kRowCount);
      operations_->project(in, Projection{.w = &also_plain, .y = rows(1)}, kRowCount);
      if (transforms) {
        operations_->project(in, Projection{.w = &changed, .y = rows(1)}, kRowCount);
        operations_->project(in, Projection{.w = &also_changed, .y = rows(1)}, kRowCount);
        operations_->project(in, Projection{.w = &other, .y = rows(1)}, kRowCount);
      }
      shown_.expect_multiplied();
    }
  }
  EXPECT_EQ(shown_.count(), 5u);
}

TEST_F(Observers, SeeTheColumnsOfEachHead) {
  for (const bool transforms : {false, true}) {
    std::vector<Linear> heads;
    for (int h = 0; h < 3; ++h) heads.push_back(linear(transforms ? factors(4) : nullptr));
    multiplied.clear();
    operations_->project_heads(
        {.matrices = heads, .x = rows(0, 3 * kCols), .x_step = kCols, .y = rows(1), .y_step = 16}, kRowCount);
    EXPECT_EQ(multiplied.size(), 3u);
    shown_.expect_multiplied();
  }
}

TEST_F(Observers, SeeTheRowsOfEachExpertForItsGateAndForItsDownProjection) {
  for (const bool transforms : {false, true}) {
    std::vector<ExpertLinears> experts(4);
    for (size_t e = 0; e < experts.size(); ++e) {
      const auto first = static_cast<float>(e);
      experts[e] = {linear(transforms ? factors(first) : nullptr), linear(transforms ? factors(first) : nullptr),
                    linear(transforms ? factors(5 + first) : nullptr)};
      experts[e].down.weight.cols = 16;
    }
    const Routing routing{.experts = 4, .used = 2};
    multiplied.clear();
    operations_->route({.routing = routing, .scores = rows(2, 8)}, kRowCount);
    operations_->run_experts({.experts = experts, .x = rows(), .target = {rows(3)}}, kRowCount);
    size_t shown_rows = 0;
    for (const ExpertLinears& e : experts) shown_rows += multiplied[e.down.weight.data].size();
    EXPECT_EQ(shown_rows, 2u * kRowCount);
    shown_.expect_multiplied();
  }
}

}  // namespace
}  // namespace quire
