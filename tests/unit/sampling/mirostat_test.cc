#include "sampling/mirostat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sampling/sampler.h"

namespace quire {
namespace {

// Zipf's law: p of rank r is proportional to r^-s.
std::vector<float> zipf_logits(size_t count, double s) {
  std::vector<float> logits;
  for (size_t rank = 1; rank <= count; ++rank)
    logits.push_back(static_cast<float>(-s * std::log(static_cast<double>(rank))));
  return logits;
}

struct Surprise {
  double of_cut, of_model;  // in bits: means of -log2 p, p after and before the cut
};

// Samples an answer of 4000 tokens from the same logits, and measures its second half.
Surprise surprise_of(const std::vector<float>& logits, const SamplingParams& params) {
  constexpr int kTokens = 4000, kMeasured = kTokens / 2;
  double total = 0;
  for (const float x : logits) total += std::exp(x);
  SamplerScratch scratch;
  Surprise mean{};
  double mu = first_mirostat_mu(params);
  for (int i = 0; i < kTokens; ++i) {
    std::vector<float> row = logits;
    const Sampled sampled = sample(params,
                                   {.logits = row,
                                    .prompt = {},
                                    .generated = {},
                                    .banned = {},
                                    .position = static_cast<uint64_t>(i),
                                    .mirostat_mu = mu},
                                   scratch);
    const double of_cut = params.mirostat_tau + (mu - sampled.mirostat_mu) / params.mirostat_eta;
    mu = sampled.mirostat_mu;
    if (i < kTokens - kMeasured) continue;
    mean.of_cut += of_cut / kMeasured;
    mean.of_model -= std::log2(std::exp(logits[static_cast<size_t>(sampled.token)]) / total) / kMeasured;
  }
  return mean;
}

TEST(Mirostat, KeepsTheSurpriseNearTau) {
  const std::vector<float> logits = zipf_logits(5000, 1.1);
  const double free = surprise_of(logits, {}).of_model;
  for (const int version : {1, 2}) {
    for (const float tau : {2.0f, 3.0f, 4.0f}) {
      const Surprise s = surprise_of(logits, {.mirostat = version, .mirostat_tau = tau, .mirostat_eta = 0.05f});
      EXPECT_NEAR(s.of_cut, tau, 0.05) << version;
      EXPECT_LT(s.of_model, free - 1) << version;
    }
  }
}

TEST(Mirostat, AdaptsByTheSurpriseOfTheDrawnToken) {
  // Of two equal tokens each has a surprise of 1.
  const SamplingParams params{.mirostat = 2, .mirostat_tau = 3, .mirostat_eta = 0.25f};
  std::vector<float> logits = {1, 1};
  SamplerScratch scratch;
  EXPECT_EQ(first_mirostat_mu(params), 6);
  EXPECT_EQ(sample(params, {.logits = logits, .prompt = {}, .generated = {}, .banned = {}, .mirostat_mu = 6}, scratch)
                .mirostat_mu,
            6 - 0.25 * (1 - 3));
}

TEST(Mirostat, KeepsTheBestTokenWhateverMuIs) {
  const std::vector<float> logits = {0, 0, 0, 1, 1, 0};
  for (const int version : {1, 2}) {
    for (uint64_t position = 0; position < 50; ++position) {
      std::vector<float> row = logits;
      SamplerScratch scratch;
      const SampleRow input{.logits = row,
                            .prompt = {},
                            .generated = {},
                            .banned = {},
                            .position = position,
                            .mirostat_mu = version == 2 ? 0.5 : -50};
      EXPECT_EQ(sample({.mirostat = version}, input, scratch).token, 3) << version;
    }
  }
}

TEST(Mirostat, CutsZipfsLawWhereMuSays) {
  // The law holds exactly, so version 1 finds its exponent and keeps k tokens.
  const size_t vocab = 1000;
  const double s = 1.5, mu = 4, e = s - 1;
  const double k = std::pow(e * std::exp2(mu) / (1 - std::pow(vocab, -e)), 1 / s);
  ASSERT_GT(k, 4);
  TokenId last = 0;
  for (uint64_t position = 0; position < 2000; ++position) {
    std::vector<float> row = zipf_logits(vocab, s);
    SamplerScratch scratch;
    const SampleRow input{
        .logits = row, .prompt = {}, .generated = {}, .banned = {}, .position = position, .mirostat_mu = mu};
    last = std::max(last, sample({.mirostat = 1}, input, scratch).token);
  }
  EXPECT_EQ(last + 1, static_cast<TokenId>(k));
}

TEST(Mirostat, ReplacesTheOtherLimits) {
  const std::vector<float> logits = zipf_logits(500, 0.8);
  const SamplingParams alone{.mirostat = 2};
  SamplingParams with = alone;
  with.top_k = 1;
  with.top_p = 0.1f;
  with.xtc_probability = 1;
  with.dynatemp_range = 0.5f;
  EXPECT_EQ(surprise_of(logits, with).of_model, surprise_of(logits, alone).of_model);
}

}  // namespace
}  // namespace quire
