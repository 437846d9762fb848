// Rotating hidden states must leave every model the same function.
#include "quantize/rotate/rotation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "error_of.h"
#include "unit/model/bare_model.h"
#include "unit/quantize/hf_test_models.h"

namespace quire {
namespace {

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(a[i])));
    difference = std::max(difference, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return difference / most;
}

class Rotated : public testing::HfFolder, public ::testing::WithParamInterface<const char*> {
 protected:
  void rotate(const std::filesystem::path& from, const std::filesystem::path& to) {
    const Checkpoint checkpoint = Checkpoint::open(from);
    write_rotated_model(open_model_source(checkpoint), to, team_, testing::ignore_progress);
  }
};

TEST_P(Rotated, ModelIsTheSameFunction) {
  // float32, and norms that are not all ones, so that no rounding hides a mistake.
  testing::copy_with_type(testing::hf_model(GetParam()), at("in"), TensorType::F32);
  rotate(at("in"), at("out"));
  const std::vector<float> before = testing::logits_of(at("in")), after = testing::logits_of(at("out"));
  EXPECT_LT(largest_difference(before, after), 2e-4);
  // The rotation must have arrived.
  const Checkpoint original = Checkpoint::open(at("in")), result = Checkpoint::open(at("out"));
  const ModelSource source = open_model_source(original);
  for (const SourceTensor& tensor : source.tensors) {
    for (const SourceTensor::Use& use : tensor.uses) {
      const TensorView *old = original.find_tensor(tensor.name), *now = result.find_tensor(tensor.name);
      ASSERT_TRUE(old && now) << tensor.name;
      const Tensor what = use.slot.tensor;
      const bool is_rotated = what == Tensor::kEmbedding || what == Tensor::kOutput || what == Tensor::kO;
      EXPECT_TRUE(!is_rotated || !std::ranges::equal(old->bytes, now->bytes)) << tensor.name;
    }
  }
  EXPECT_FALSE(read_model_config(result).tied_output);
  EXPECT_TRUE(result.find_tensor("lm_head.weight") || result.find_tensor("output.weight"));
  EXPECT_EQ(names(), (std::vector<std::string>{"in", "out"}));
}

INSTANTIATE_TEST_SUITE_P(Models, Rotated,
                         ::testing::Values("llama", "llama_tied_rope3", "llama_yarn", "mistral", "qwen2", "seed_oss",
                                           "internlm2", "arcee", "ministral3", "bitnet",  // norms within
                                           "olmoe", "minimax_m2", "ernie4_5_moe", "glm4_moe", "deepseek_v3",  // experts
                                           "lfm2", "lfm2_moe", "nemotron_h", "nemotron_h_moe", "qwen3_next",
                                           "falcon_h1", "mamba2",  // recurrent layers
                                           "hunyuan", "hunyuan_moe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Rotated, TypesStayAndNormsBecomeOnes) {
  rotate(testing::hf_model("llama"), at("out"));
  const Checkpoint result = Checkpoint::open(at("out"));
  const TensorView* norm = result.find_tensor("model.layers.0.input_layernorm.weight");
  ASSERT_TRUE(norm);
  ASSERT_EQ(norm->type, TensorType::BF16);
  std::vector<float> values(norm->bytes.size() / 2);
  dequantize(norm->type, norm->bytes, values);
  EXPECT_EQ(values, std::vector<float>(values.size(), 1.0f));
}

TEST_F(Rotated, ModelsThatLookAtSingleDimensionsAreRefusedByName) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"gemma2", "norms after the branches weigh single dimensions (layer 0)"},
      {"olmo3", "norms after the branches weigh single dimensions (layer 0)"},
      {"exaone4", "norms after the branches weigh single dimensions (layer 0)"},
      {"cohere2", "layer norms subtract the mean, which rotations do not keep (layer 0)"},
      {"gpt2", "positions or segments are added to the embeddings"},
      {"gemma3n_text", "the layers have further inputs"},
      {"bloom", "embeddings are normalised"},
      {"../drafters/mtp_glm4_moe", "it has layers for multi-token prediction, which read hidden states, too"}};
  for (const auto& [model, why] : kRefused) {
    const std::filesystem::path from = testing::hf_model(model);
    const std::string message = error_of([&] { rotate(from, at("out")); });
    EXPECT_TRUE(message.ends_with(": " + std::string(why))) << model << ": " << message;
    EXPECT_NE(message.find("--rotate does not work for this "), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(at("out")));
  }
}

TEST_F(Rotated, ExpertsInOneTensorAreRefusedBeforeAnythingIsWritten) {
  const std::string message = error_of([&] { rotate(testing::hf_model("gpt_oss"), at("out")); });
  EXPECT_NE(message.find("cannot be rotated: it holds several matrices"), std::string::npos) << message;
  EXPECT_TRUE(names().empty());
}

// Inputs of down projections are rotated at run time by what config.json says.
TEST_F(Rotated, InputsOfDownProjectionsAreRotatedWhereTheyAreRounded) {
  testing::copy_with_type(testing::hf_model("llama"), at("in"), TensorType::F32);
  const Checkpoint checkpoint = Checkpoint::open(at("in"));
  const ModelSource source = open_model_source(checkpoint);
  const std::vector<float> before = testing::logits_of(at("in"));
  double lost[2] = {};
  for (const bool rotates : {false, true}) {
    const HfMethod& method = find_hf_method("smoothquant");
    const HfPlan plan = plan_hf_model(source, method, method.defaults, true, rotates);
    const FindInputs inputs = [&, of = testing::RandomInputs(source)](const Slot& slot) mutable { return of(slot); };
    write_hf_model(source, plan, inputs, at("out"), true, team_, testing::ignore_progress);
    lost[rotates] = largest_difference(before, testing::logits_of(at("out")));
    EXPECT_EQ(std::ranges::any_of(plan.changes, [](const HfTensorChange& c) { return c.rotated > 0; }), rotates);
    EXPECT_EQ(read_text_file(at("out") / "config.json").find("transform_config") != std::string::npos, rotates);
  }
  // A rotation that one side forgets loses everything.
  EXPECT_LT(lost[0], 0.1);
  EXPECT_LT(lost[1], 0.1);
  EXPECT_NE(lost[0], lost[1]);
  for (const char* name : {"gptq", "rtn-int4"}) {  // no word for it; inputs are not rounded
    const HfMethod& other = find_hf_method(name);
    for (const HfTensorChange& change : plan_hf_model(source, other, other.defaults, true, true).changes)
      EXPECT_EQ(change.rotated, 0);
  }
}

}  // namespace
}  // namespace quire
