// LoRA adapters compared with PEFT.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files/mapped_file.h"
#include "golden/engine/loaded.h"
#include "kernels/kernels.h"
#include "paths.h"

namespace quire {
namespace {

struct AdapterCase {
  const char *model, *adapter, *expected;
};
void PrintTo(const AdapterCase& c, std::ostream* out) { *out << c.adapter; }

EngineOptions adapted_options(const AdapterCase& c, std::string_view kernels) {
  EngineOptions o;
  o.model = (golden_dir() / c.model).string();
  o.kernels = kernels;
  o.activations = "f32";
  o.threads = 2;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 128;
  o.adapters = {{"golden", (golden_dir() / "adapters" / c.adapter).string()}};
  return o;
}

class GoldenAdapters : public ::testing::TestWithParam<AdapterCase> {};

TEST_P(GoldenAdapters, GiveTheLogitsOfPeft) {
  const std::string prefix = (golden_dir() / "adapters" / GetParam().expected).string() + ".expected";
  const auto expected = Safetensors::open(prefix + ".safetensors");
  const double tolerance =
      nlohmann::json::parse(read_text_file(prefix + ".json")).at("suggested_tolerance_max_abs_fp32");
  const TokenIds prompt = ids(expected, "prompt_0");
  const auto wanted = values<float>(expected, "logits_0");
  for (const KernelSet* set : available_kernels()) {
    SCOPED_TRACE(std::string(set->name));
    LoadedModel model(adapted_options(GetParam(), set->name), 128);
    SingleSequence adapted(model, model.adapters.find("golden")->number);
    EXPECT_LE(largest_difference(wanted, adapted.append(prompt, true)), tolerance);
    adapted.clear();
    SingleSequence plain(model);
    EXPECT_GE(largest_difference(wanted, plain.append(prompt, true)), 100 * tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenAdapters,
                         ::testing::Values(AdapterCase{"models/llama", "llama", "llama"},
                                           AdapterCase{"models/llama", "llama_rslora", "llama_rslora"},
                                           AdapterCase{"models/qwen2", "qwen2", "qwen2"},
                                           AdapterCase{"models/glm", "glm", "glm"},
                                           AdapterCase{"models/falcon", "falcon", "falcon"},
                                           AdapterCase{"models/llama", "llama_dora", "llama_dora"},
                                           AdapterCase{"models/qwen2", "qwen2_dora", "qwen2_dora"},
                                           AdapterCase{"models/glm", "glm_dora", "glm_dora"},
                                           AdapterCase{"models-gguf/qwen2.gguf", "qwen2.gguf", "qwen2"}));

}  // namespace
}  // namespace quire
