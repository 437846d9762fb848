#include "cli/flags/sampling_flags.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

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

TEST(SamplingFlags, DescribeTheLessCommonSamplersThatAreOn) {
  SamplingFlags flags{.given = {.temperature = 0.7f}, .others = {.xtc_probability = 0.5f, .dry_multiplier = 0.8f}};
  EXPECT_EQ(describe_sampling(resolve_sampling(flags, {.temperature = 1.0f}), flags, {.temperature = 1.0f}),
            "temperature 0.7, DRY 0.8 (base 1.75, from 2 tokens), XTC 0.5 (from 0.1) (recommended for this model, "
            "changed by flags)");
  flags.others.mirostat = 2;  // instead of XTC and top-k
  EXPECT_EQ(describe_sampling(resolve_sampling(flags, {}), flags, {}),
            "temperature 0.7, DRY 0.8 (base 1.75, from 2 tokens), Mirostat 2 (tau 5, eta 0.1) (Quire's defaults; the "
            "model recommends none, changed by flags)");
}

// The value of each flag, whether a model may recommend it or not.
double value_of(const SamplingFlags& flags, const SamplingParameter& parameter) {
  const SamplingParams sampling = resolve_sampling(flags, {.temperature = 1});
  return std::visit([&](auto member) { return static_cast<double>(sampling.*member); }, parameter.member);
}

TEST(SamplingFlags, HaveTheRangesOfTheTable) {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (parameter.flags.empty() || std::holds_alternative<bool SamplingParams::*>(parameter.member)) continue;
    const std::string flag(parameter.flags.substr(0, parameter.flags.find(',')));
    for (const double bound : {parameter.low, parameter.high}) {
      SamplingFlags flags;
      CLI::App app;
      add_sampling_flags(app, flags, "Sampling");
      app.parse(fmt::format("{} {}", flag, bound));
      EXPECT_FLOAT_EQ(value_of(flags, parameter), bound) << flag;
      CLI::App again;
      add_sampling_flags(again, flags, "Sampling");
      EXPECT_THROW(again.parse(fmt::format("{} {}", flag, bound + (bound == parameter.low ? -1 : 1))),
                   CLI::ValidationError)
          << flag;
    }
  }
}

TEST(SamplingFlags, ReadTheLessCommonSamplers) {
  SamplingFlags flags;
  CLI::App app;
  add_sampling_flags(app, flags, "Sampling");
  app.parse(
      "--dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 64 --mirostat 1 "
      "--mirostat-ent 3 --mirostat-lr 0.2 --xtc-probability 0.5 --xtc-threshold 0.2 --dynatemp-range 0.5 "
      "--dynatemp-exp 2 --top-nsigma 1.5 --dry-sequence-breaker [END] --dry-sequence-breaker ,");
  const SamplingParams expected{.top_n_sigma = 1.5f,
                                .xtc_probability = 0.5f,
                                .xtc_threshold = 0.2f,
                                .dynatemp_range = 0.5f,
                                .dynatemp_exponent = 2,
                                .mirostat = 1,
                                .mirostat_tau = 3,
                                .mirostat_eta = 0.2f,
                                .dry_multiplier = 0.8f,
                                .dry_base = 2,
                                .dry_allowed_length = 3,
                                .dry_penalty_last_n = 64,
                                .dry_sequence_breakers = {"[END]", ","}};
  EXPECT_EQ(flags.others, expected);
  CLI::App again;
  add_sampling_flags(again, flags, "Sampling");
  again.parse("--dry-sequence-breaker none");
  EXPECT_TRUE(flags.others.dry_sequence_breakers.empty());
}

}  // namespace
}  // namespace quire
