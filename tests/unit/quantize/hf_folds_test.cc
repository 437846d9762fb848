// Folding factors of inputs into what computes them must leave every model the same function.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quantize/hf/folds.h"
#include "unit/model/bare_model.h"
#include "unit/quantize/hf_test_models.h"

namespace quire {
namespace {

// Weights stay float32, but all factors that can be folded are, at random.
std::vector<ModulePart> plain_parts(int rows, int cols, const MethodSettings&) {
  return {{".weight", TensorType::F32, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)}}};
}
EncodedModule encode_plain(const FloatMatrix& weights, const MatrixContext&, const MethodSettings&, SolverState&) {
  const auto bytes = std::as_bytes(std::span(weights.values));
  return {.parts = {{bytes.begin(), bytes.end()}}, .values = weights, .note = {}};
}
InputScales random_scales(const FloatMatrix& weights, std::span<const float>, const InputStatistics&,
                          std::span<const int> tied, const MethodSettings&, Team&) {
  std::mt19937 generator(static_cast<unsigned>(weights.rows));
  std::uniform_real_distribution<float> exponent(-2, 2);
  InputScales found;
  for (int i = 0; i < weights.cols; ++i) found.scales.push_back(std::exp2(exponent(generator)));
  for (size_t i = 0; i < tied.size(); ++i) found.scales[i] = found.scales[static_cast<size_t>(tied[i])];
  return found;
}
Json describe_plain(const MethodSettings&, std::span<const std::string>) {
  return {{"quant_method", "compressed-tensors"}, {"config_groups", Json::object()}};
}
std::string fits(int, int, const MethodSettings&) { return ""; }
constexpr HfMethod kPlain = {.name = "plain",
                             .layout = "compressed-tensors",
                             .about = "",
                             .needs = NeededInputs::kSample,
                             .flags = 0,
                             .bits = {},
                             .defaults = {},
                             .misfit = fits,
                             .parts = plain_parts,
                             .encode = encode_plain,
                             .scales = random_scales,
                             .describe = describe_plain};

struct FoldCase {
  const char* model;
  size_t points;  // of the first layer
};
class Folds : public testing::HfFolder, public ::testing::WithParamInterface<FoldCase> {};

TEST_P(Folds, LeaveTheModelTheSameFunction) {
  // float32, so that no rounding of norms and routers hides a mistake.
  testing::copy_with_type(testing::hf_model(GetParam().model), at("in"), TensorType::F32);
  const Checkpoint checkpoint = Checkpoint::open(at("in"));
  const ModelSource source = open_model_source(checkpoint);
  EXPECT_EQ(fold_points(source.config, static_cast<int>(source.config.layers.size()) - 1).size(), GetParam().points);
  const FindInputs inputs = [&, of = testing::RandomInputs(source)](const Slot& slot) mutable { return of(slot); };
  const HfPlan plan = plan_hf_model(source, kPlain, {}, false);
  const WrittenModel written = write_hf_model(source, plan, inputs, at("out"), false, team_, testing::ignore_progress);
  EXPECT_TRUE(written.notes.empty()) << written.notes.front();
  const std::vector<float> before = testing::logits_of(at("in")), after = testing::logits_of(at("out"));
  double most = 0, difference = 0, moved = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(before[i])));
    difference = std::max(difference, std::fabs(static_cast<double>(before[i] - after[i])));
  }
  EXPECT_LT(difference, 2e-4 * most);
  // The factors must have arrived at all.
  const Checkpoint result = Checkpoint::open(at("out"));
  for (const TensorView& view : result.tensors()) {
    const TensorView* old = checkpoint.find_tensor(view.name);
    ASSERT_TRUE(old);
    moved += !std::ranges::equal(view.bytes, old->bytes);
  }
  EXPECT_EQ(moved > 0, GetParam().points > 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Folds,
                         ::testing::Values(FoldCase{"llama", 4}, FoldCase{"qwen2", 4},         // biases
                                           FoldCase{"gemma2", 4}, FoldCase{"gemma3_text", 4},  // norms of 1 + w
                                           FoldCase{"phimoe", 3 + 6},
                                           FoldCase{"olmoe", 2 + 8},                       // experts; clipped values
                                           FoldCase{"falcon", 3}, FoldCase{"cohere2", 3},  // branches that share a norm
                                           FoldCase{"stablelm_qk_norm_biases", 4},         // layer norms with biases
                                           FoldCase{"ernie4_5_moe", 3 + 6 + 1}, FoldCase{"glm4_moe", 3 + 8 + 1},
                                           FoldCase{"exaone4", 2}, FoldCase{"olmo3", 2},  // norms after the branches
                                           FoldCase{"bitnet", 2},                         // norms within
                                           FoldCase{"gpt_oss", 3}, FoldCase{"gemma3n_text", 0},
                                           FoldCase{"gemma4_text", 0}, FoldCase{"deepseek_v3", 1 + 8 + 1},
                                           FoldCase{"falcon_h1", 0}),
                         [](const auto& info) { return std::string(info.param.model); });

}  // namespace
}  // namespace quire
