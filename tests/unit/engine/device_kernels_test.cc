// Whole models on the emulated GPU, with kernels that measuring may choose in place of the usual ones.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/emulated/device.h"
#include "engine/loaded_model.h"
#include "engine/tuner.h"
#include "unit/engine/all_logits.h"
#include "unit/engine/beside_a_device.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::all_logits;
using testing::random_tokens;
using testing::same_bits;

class DeviceKernels : public ::testing::TestWithParam<const char*> {};

// Then nothing is launched for the inputs of most linears, and the rows that they are made of must still be there.
TEST_P(DeviceKernels, HaveTheSameBitsWhenTheyPrepareInputs) {
  LoadedModel model(testing::shared_options(testing::golden_kind(GetParam()), kAllGpuLayers), 64);
  const TokenIds ids = random_tokens(3, 13);
  const std::vector<float> one = all_logits(model, ids, 1), several = all_logits(model, ids, 6);
  Backend& device = *model.runtime.device;
  const std::vector<TunedProjection> projections = tuned_projections(model.target, Activations::kBf16);
  Backend::KernelChoices choices = device.tune(projections, Activations::kBf16, 8, {}, {});
  ASSERT_FALSE(choices.empty());
  for (auto& [kind, choice] : choices) choice = "few rows, 2 panels, prepares inputs";
  EXPECT_TRUE(device.tune(projections, Activations::kBf16, 8, choices, {}).empty());
  auto& emulated = static_cast<cuda::EmulatedDevice&>(static_cast<cuda::CudaBackend&>(device).device());
  emulated.reset_counters();
  EXPECT_TRUE(same_bits(all_logits(model, ids, 1), one));
  EXPECT_GT(emulated.counters()["linear_of_few_rows"].launches, 0U);
  EXPECT_TRUE(same_bits(all_logits(model, ids, 6), several));
}
INSTANTIATE_TEST_SUITE_P(All, DeviceKernels,
                         ::testing::Values("mistral", "gemma2", "gemma3n_text", "gpt_oss", "deepseek_v3",
                                           "cohere_qk_norm", "gpt2", "qwen3_next", "granitemoehybrid"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire
