// Models whose inputs are transformed compared with the same models without.

#include <gtest/gtest.h>

#include <cstring>

#include "golden/engine/expected_tensors.h"
#include "golden/engine/loaded.h"
#include "kernels/kernels.h"
#include "paths.h"
#include "unit/model/transformed_model.h"

namespace quire {
namespace {

std::vector<float> logits_of(const std::string& path, std::string_view kernels, const std::string& activations) {
  Loaded loaded(path, kernels, activations, "f32");
  SingleSequence sequence(loaded.model);
  TokenIds prompt;
  for (TokenId i = 0; i < 19; ++i) prompt.push_back((i * 37 + 5) % 250);
  const auto logits = sequence.append(prompt, true);
  return {logits.begin(), logits.end()};
}

class TransformedModels : public ::testing::TestWithParam<testing::TransformedModel> {};

TEST_P(TransformedModels, HaveTheLogitsOfTheModelWithoutTransform) {
  testing::EditedModel model("llama");
  GetParam().edit(model);
  const std::string path = model.write();
  const std::string plain = golden_dir() / "models/llama";
  const auto expected = logits_of(plain, "auto", "f32");
  EXPECT_LE(relative_distance(expected, logits_of(path, "auto", "f32")), 1e-5);
  EXPECT_LE(relative_distance(expected, logits_of(path, "auto", "bf16")), 0.02);
}

TEST_P(TransformedModels, HaveTheSameBitsOnEveryKernelSet) {
  testing::EditedModel model("llama");
  GetParam().edit(model);
  const std::string path = model.write();
  for (const char* activations : {"f32", "bf16"}) {
    std::vector<float> first;
    for (const KernelSet* set : available_kernels()) {
      SCOPED_TRACE(std::string(set->name) + " " + activations);
      const auto logits = logits_of(path, set->name, activations);
      if (first.empty()) first = logits;
      ASSERT_EQ(logits.size(), first.size());
      EXPECT_EQ(std::memcmp(logits.data(), first.data(), first.size() * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransformedModels, ::testing::ValuesIn(testing::transformed_models()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Powers of two change no bit, and an order of inputs moves their factors with them.
TEST(TransformedModel, MultipliesInputsThatHaveAnOrder) {
  testing::EditedModel model("../formats/hf-models/llama-gptq-orders");
  const std::string module = "model.layers.0.self_attn.q_proj";
  std::vector<float> factors(64);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = 2;
  model.tensors[module + ".pre_quant_scale"] = testing::float_tensor({64}, factors);
  std::string& scales = model.tensors.at(module + ".scales").bytes;
  for (size_t i = 0; i < scales.size(); i += 2) {
    uint16_t half;
    std::memcpy(&half, scales.data() + i, 2);
    half = f32_to_f16(f16_to_f32(half) / 2);
    std::memcpy(scales.data() + i, &half, 2);
  }
  const std::string plain = golden_dir() / "formats/hf-models/llama-gptq-orders";
  EXPECT_EQ(logits_of(model.write(), "auto", "f32"), logits_of(plain, "auto", "f32"));
}

}  // namespace
}  // namespace quire
