// Quantized Hugging Face models compared with transformers on their dequantized weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "golden/engine/expected_tensors.h"
#include "golden/engine/loaded.h"
#include "kernels/kernels.h"
#include "model/families.h"
#include "model/weights.h"
#include "ops/cpu/cpu_backend.h"
#include "paths.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path models() { return golden_dir() / "formats/hf-models"; }

class QuantizedModels : public ::testing::TestWithParam<std::string> {
 protected:
  const fs::path folder_ = models() / GetParam();
  const Safetensors expected_ = Safetensors::open(folder_ / "expected.safetensors");
  const TokenIds prompt_ = ids(expected_, "input_ids");
  const std::vector<float> logits_ = values<float>(expected_, "logits");
};

TEST_P(QuantizedModels, HaveTheLogitsAndTokensOfTheirDequantizedWeights) {
  double top = 0;
  for (const float v : logits_) top = std::max(top, std::abs(double{v}));
  const TokenIds greedy = ids(expected_, "greedy_tokens");
  ASSERT_EQ(greedy.size(), 16u);
  for (const KernelSet* set : available_kernels()) {
    SCOPED_TRACE(std::string(set->name));
    Loaded loaded(folder_.string(), set->name, "f32");
    SingleSequence sequence(loaded.model);
    auto logits = sequence.append(prompt_, true);
    EXPECT_LE(largest_difference(logits_, logits), 2e-4 + 1e-4 * top);
    logits = logits.last(static_cast<size_t>(loaded.model.target.config.vocab));
    for (const TokenId token : greedy) {
      const TokenId best = argmax(logits);
      ASSERT_EQ(best, token);
      logits = sequence.append({&best, 1}, false);
    }
  }
}

// Random weights magnify rounding; int8 rows of W8A8 and FP8 rows lose the most, these in a router that then chooses other experts.
TEST_P(QuantizedModels, StayNearThoseWithRoundedInputs) {
  for (const auto& [activations, bound] : {std::pair{"int8", 0.05}, {"int8x2", 0.05}, {"bf16", 0.02}, {"fp8", 0.25}}) {
    if (std::getenv("QUIRE_TEST_DEVICE") && activations == std::string("int8x2")) continue;  // the CPU's alone
    SCOPED_TRACE(activations);
    Loaded loaded(folder_.string(), "auto", activations);
    SingleSequence sequence(loaded.model);
    EXPECT_LE(relative_distance(logits_, sequence.append(prompt_, true)), bound);
  }
}

TEST_P(QuantizedModels, HaveTheSameBitsOnEveryKernelSet) {
  for (const char* activations : {"f32", "bf16", "int8", "int8x2", "fp8"}) {
    std::vector<float> first;
    for (const KernelSet* set : available_kernels()) {
      SCOPED_TRACE(std::string(set->name) + " " + activations);
      Loaded loaded(folder_.string(), set->name, activations);
      SingleSequence sequence(loaded.model);
      const auto logits = sequence.append(prompt_, true);
      if (first.empty()) first.assign(logits.begin(), logits.end());
      ASSERT_EQ(logits.size(), first.size());
      EXPECT_EQ(std::memcmp(logits.data(), first.data(), logits.size_bytes()), 0);
    }
  }
}

// A simulation in torch, of int8 products with one scale a row.
TEST_P(QuantizedModels, HaveTheLogitsOfInt8RowsIfMadeForThem) {
  const auto wanted = values<float>(expected_, "int8_logits");
  Loaded loaded(folder_.string(), "auto", "int8", "f32");
  EXPECT_EQ(loaded.model.target.config.input_forms.int8_rows, !wanted.empty());
  if (wanted.empty()) return;
  SingleSequence sequence(loaded.model);
  EXPECT_LE(relative_distance(wanted, sequence.append(prompt_, true)), 1e-4);
}

TEST(ScalesOfQuantizedCaches, AreLeftOutWithAWord) {
  for (const auto& [name, count] : {std::pair{"modelopt-nvfp4-kv", 1u}, {"modelopt-awq", 0u}}) {
    const Checkpoint checkpoint = Checkpoint::open(models() / name);
    std::vector<std::string> said;
    Team team(1);
    CpuBackend backend("auto", team);
    load_weights(checkpoint, read_model_config(checkpoint), backend, team,
                 {.memory = size_t{1} << 30, .warn = [&](const std::string& text) { said.push_back(text); }});
    ASSERT_EQ(said.size(), count);
    if (count == 0) continue;
    EXPECT_NE(said[0].find(": 2 tensors with scales of quantized keys, values or outputs, such as "
                           "model.layers.0.self_attn.k_proj.k_scale, are not used; --kv-cache-dtype says"),
              std::string::npos)
        << said[0];
  }
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(models())) found.push_back(entry.path().filename().string());
  std::ranges::sort(found);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Methods, QuantizedModels, ::testing::ValuesIn(names()), [](const auto& name) {
  std::string text = name.param;
  std::ranges::replace(text, '-', '_');
  return text;
});

}  // namespace
}  // namespace quire
