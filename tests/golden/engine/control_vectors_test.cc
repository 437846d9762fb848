// Control vectors compared with transformers.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files/mapped_file.h"
#include "golden/engine/loaded.h"
#include "kernels/kernels.h"
#include "paths.h"

namespace quire {
namespace {

const std::filesystem::path kControlVectors = golden_dir() / "control-vectors";

EngineOptions controlled_options(std::string_view kernels, std::vector<ControlVectorOption> vectors) {
  EngineOptions o;
  o.model = (golden_dir() / "models/llama").string();
  o.kernels = kernels;
  o.activations = "f32";
  o.threads = 2;
  o.max_num_seqs = 1;
  o.max_num_batched_tokens = 128;
  o.control_vectors = std::move(vectors);
  return o;
}

TEST(GoldenControlVectors, GiveTheLogitsOfTransformers) {
  const auto expected = Safetensors::open(kControlVectors / "expected.safetensors");
  const double tolerance =
      nlohmann::json::parse(read_text_file(kControlVectors / "expected.json")).at("suggested_tolerance_max_abs_fp32");
  const TokenIds prompt = ids(expected, "prompt_0");
  const std::string first = (kControlVectors / "first.gguf").string(),
                    second = (kControlVectors / "second.gguf").string();
  const auto difference = [&](const EngineOptions& options, const char* logits) {
    LoadedModel model(options, 128);
    SingleSequence sequence(model);
    return largest_difference(values<float>(expected, logits), sequence.append(prompt, true));
  };
  for (const KernelSet* set : available_kernels()) {
    SCOPED_TRACE(std::string(set->name));
    const EngineOptions both = controlled_options(set->name, {{first, 1}, {second, -0.5}});
    EXPECT_LE(difference(both, "logits_both"), tolerance);
    EXPECT_GE(difference(controlled_options(set->name, {}), "logits_both"), 100 * tolerance);
    EngineOptions last = controlled_options(set->name, {{first, 2}});
    last.control_first_layer = last.control_last_layer = 2;
    EXPECT_LE(difference(last, "logits_last_layer"), tolerance);
  }
}

}  // namespace
}  // namespace quire
