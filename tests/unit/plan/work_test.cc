#include "plan/work.h"

#include <gtest/gtest.h>

#include "plan/planned_model.h"

namespace quire {
namespace {

constexpr auto kAttention = static_cast<size_t>(StepOp::kAttention), kExperts = static_cast<size_t>(StepOp::kExperts),
               kHead = static_cast<size_t>(StepOp::kHead), kQkv = static_cast<size_t>(StepOp::kQkv);

PlannedModel planned(const char* shape, const WeightStorage& storage = {.type = TensorType::F16}) {
  return plan_config(shape, parse_shape_config(shape), storage, {});
}
constexpr const char* kSmall = "layers=2,hidden=64,heads=4,kv-heads=2,head-dim=16,ffn=96,vocab=160,context=4096";

TEST(Work, CountsEachMatrixOnce) {
  const auto work = step_work(planned(kSmall).work, decode_load(3, 0));
  const double qkv = 2 * (64 + 32 + 32) * 64;
  EXPECT_EQ(work[kQkv].bytes, 2 * qkv);
  EXPECT_EQ(work[kQkv].total_multiply_adds(), 3 * qkv);
  EXPECT_EQ(work[static_cast<size_t>(StepOp::kGateUp)].bytes, 2 * 2 * 2 * 96 * 64);
  EXPECT_EQ(work[kHead].bytes, 2 * 160 * 64);
}

TEST(Work, ReadsTheOutputMatrixForLogitsOnly) {
  const PlannedModel model = planned(kSmall);
  EXPECT_EQ(step_work(model.work, prefill_load(16, 0, false))[kHead].bytes, 0);
  EXPECT_EQ(step_work(model.work, prefill_load(16, 0, true))[kHead].total_multiply_adds(), 160 * 64);
}

// Row i of a prompt attends to i + 1 tokens, so a whole prompt to n (n + 1) / 2, in whatever chunks.
TEST(Work, OfAttentionDoesNotDependOnChunks) {
  const PlannedModel model = planned(kSmall);
  const auto products = [&](int rows, int position) {
    return step_work(model.work, prefill_load(rows, position, false))[kAttention].total_multiply_adds();
  };
  const double each = 2 * 4 * (16 + 16);
  EXPECT_EQ(products(100, 0), each * 100 * 101 / 2);
  EXPECT_EQ(products(40, 0) + products(60, 40), products(100, 0));
}

TEST(Work, OfAttentionStopsAtTheWindow) {
  const PlannedModel model = planned("layers=1,hidden=64,heads=4,window=32,context=4096");
  const auto of = [&](const StepLoad& load) { return step_work(model.work, load)[kAttention]; };
  const double each = 4 * (16 + 16);
  double seen = 0;
  for (int i = 0; i < 50; ++i) seen += std::min(i + 1, 32);
  EXPECT_EQ(of(prefill_load(50, 0, false)).total_multiply_adds(), each * seen);
  EXPECT_EQ(of(decode_load(1, 1000)).total_multiply_adds(), each * 32);
  EXPECT_EQ(of(decode_load(5, 1000)).bytes, 5 * 32 * 2.0 * 64 * 2);
  EXPECT_EQ(of(decode_load(1, 9)).bytes, 10 * 2.0 * 64 * 2);
}

// Of 8 experts, a row uses 2. One row reads a quarter of them, many rows all.
TEST(Work, ReadsTheExpertsThatRowsChoose) {
  const PlannedModel model = planned("layers=1,hidden=64,heads=4,ffn=32,experts=8,experts-used=2");
  const double all = 8 * 3 * 32 * 64;
  const auto one = step_work(model.work, decode_load(1, 0))[kExperts];
  EXPECT_DOUBLE_EQ(one.bytes, 2 * all / 4);
  EXPECT_DOUBLE_EQ(one.total_multiply_adds(), all / 4);
  const auto many = step_work(model.work, decode_load(100, 0))[kExperts];
  EXPECT_NEAR(many.bytes, 2 * all, 1e-6 * all);
  EXPECT_DOUBLE_EQ(many.total_multiply_adds(), 100 * all / 4);
}

TEST(Work, MultipliesInTheTypeThatTheFormatAllows) {
  const auto unit = [](TensorType type) {
    const ComputeForm int8{.activations = Activations::kInt8x2, .kv = KvType::kBf16, .packed = true};
    return plan_config("", parse_shape_config(kSmall), {.type = type}, int8).work.linears[0].unit;
  };
  EXPECT_EQ(unit(TensorType::Q8_0), Activations::kInt8);
  EXPECT_EQ(unit(TensorType::BF16), Activations::kBf16);
}

TEST(Work, TakesTheLongerOfReadingAndMultiplying) {
  const MachineRates rates{100, {10, 20, 0}};
  EXPECT_EQ(least_seconds({.bytes = 500, .multiply_adds = {20, 40, 0}}, rates), 5);
  EXPECT_EQ(least_seconds({.bytes = 100, .multiply_adds = {20, 40, 0}}, rates), 4);
}

}  // namespace
}  // namespace quire
