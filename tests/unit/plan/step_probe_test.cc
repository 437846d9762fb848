#include "plan/step_probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "error_of.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "ops/cpu/cpu_backend.h"
#include "plan/random_weights.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

PlannedModel planned_shape(const char* text, const WeightStorage& storage = {.type = TensorType::Q8_0}) {
  return plan_config(text, parse_shape_config(text), storage, {.activations = Activations::kInt8, .packed = true});
}

TEST(ProbeSize, IsAtMostHalfOfTheLayers) {
  // 16 layers of 61 MB and an output matrix: two layers exceed the caches.
  const ProbeSize large = probe_size(planned_shape("llama-3.2-1b"), size_t{32} << 20);
  EXPECT_EQ(large.layers, 2);
  EXPECT_EQ(large.copies, 1);
  // All 30 layers take 140 MB, so 128 MB are wanted: two copies of half of that.
  const ProbeSize small = probe_size(planned_shape("smollm2-135m"), size_t{32} << 20);
  EXPECT_LE(small.layers, 15);
  EXPECT_GE(small.copies, 2);
  EXPECT_EQ(probe_size(planned_shape("llama-3.2-1b"), 0).vocab, 1 << 16);
}

TEST(ProbeSize, TakesWholePeriods) {
  PlannedModel model = planned_shape("layers=26,hidden=64,heads=4");
  for (size_t i = 0; i < model.config.layers.size(); ++i) {
    if (i % 6 != 5) std::get<Attention>(model.config.layers[i].mixer).window = 512;
  }
  EXPECT_EQ(probe_size(model, size_t{32} << 20).layers % 6, 0);
}

TEST(RandomWeights, AreFiniteInEachFormat) {
  Team team(2);
  CpuBackend cpu("", team);
  const ModelConfig config = parse_shape_config("layers=1,hidden=256,heads=4,ffn=512,vocab=272,tied=yes");
  for (const TensorTypeInfo& type : tensor_types()) {
    if (!type.loadable || !has_panel_format(type.type)) continue;
    SCOPED_TRACE(type.name);
    const PanelFormat& format = panel_format(type.type);
    const Weights weights = random_weights(
        config, [&](const Slot&) -> const PanelFormat& { return format; }, cpu, team);
    double sum = 0;
    for_each_matrix(config, weights, [&](const Slot&, const Linear& m) {
      for (int p = 0; p < m.weight.panels(); ++p) EXPECT_TRUE(is_finite(m.weight, p));
      for (int col = 0; col < m.weight.cols; ++col) {
        const float weight = packed_weight(m.weight, col % m.weight.rows, col);
        EXPECT_LE(std::abs(weight), 32) << col;
        sum += std::abs(weight);
      }
    });
    EXPECT_GT(sum, 0);
  }
}

TEST(StepProbe, MeasuresEachKindOfStep) {
  Team team(2);
  const Compute compute{choose_kernels(""), team, Activations::kInt8};
  const PlannedModel model = planned_shape("layers=3,hidden=64,heads=4,kv-heads=2,ffn=96,vocab=160");
  StepProbe probe(compute, model, KvType::kBf16, "", size_t{1} << 30);
  const StepTimes times = probe.measure(1);
  EXPECT_EQ(times.knots.front().rows, 1);
  EXPECT_EQ(times.knots.back().rows, 512);
  for (const StepTimes::Knot& knot : times.knots) {
    EXPECT_GT(knot.body, 0);
    EXPECT_GT(knot.head, 0);
  }
  EXPECT_GT(step_seconds(times, decode_load(3, 1000)), 0);
  EXPECT_GT(step_seconds(times, prefill_load(600, 100, true)), 0);
}

TEST(StepProbe, RefusesWhatItCannotMeasure) {
  Team team(1);
  const Compute compute{choose_kernels(""), team, Activations::kInt8};
  const auto refused = [&](const PlannedModel& model, size_t memory) {
    return error_of([&] { StepProbe(compute, model, KvType::kBf16, "", memory); });
  };
  EXPECT_NE(refused(planned_shape("tiny", {.bits = 4.25}), size_t{1} << 30).find("no format"), std::string::npos);
  EXPECT_NE(refused(planned_shape("tiny"), size_t{1} << 20).find("needs"), std::string::npos);
}

}  // namespace
}  // namespace quire
