#include "cli/sampling_flags.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(SamplingFlags, DefaultToLlamaCppsForModelsThatRecommendNothing) {
  const SamplingParams sampling = resolve_sampling({}, {});
  EXPECT_FLOAT_EQ(sampling.temperature, 0.8f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.95f);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
}

TEST(SamplingFlags, PreferTheModelsRecommendationToDefaults) {
  const SamplingDefaults model{.temperature = 0.1f, .repetition_penalty = 1.1f};
  const SamplingParams sampling = resolve_sampling({}, model);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.1f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampling.top_k, 0) << "a recommendation is not mixed with our defaults";
}

TEST(SamplingFlags, PreferFlagsToTheModelsRecommendation) {
  const SamplingDefaults model{.temperature = 0.1f, .top_p = 0.9f};
  const SamplingFlags flags{.given = {.temperature = 0.7f}, .others = {.typical_p = 0.5f}};
  const SamplingParams sampling = resolve_sampling(flags, model);
  EXPECT_FLOAT_EQ(sampling.temperature, 0.7f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(sampling.typical_p, 0.5f);
}

TEST(SamplingFlags, DescribeTheSettingsInForceAndTheirSource) {
  const SamplingDefaults model{.temperature = 0.1f, .top_p = 0.9f, .repetition_penalty = 1.1f};
  EXPECT_EQ(describe_sampling(resolve_sampling({}, model), {}, model),
            "temperature 0.1, top-p 0.9, repetition penalty 1.1 (recommended for this model)");
  const SamplingFlags greedy{.given = {.temperature = 0.0f}};
  EXPECT_EQ(describe_sampling(resolve_sampling(greedy, {}), greedy, {}),
            "temperature 0 (Quire's defaults; the model recommends none, changed by flags)");
}

}  // namespace
}  // namespace quire
