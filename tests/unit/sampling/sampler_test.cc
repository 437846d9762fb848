#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The inputs of a test; the logits are copied because sample() overwrites them.
struct Given {
  std::vector<float> logits;
  TokenIds prompt = {}, generated = {}, banned = {};
  uint64_t position = 0;
  uint32_t choice = 0;
  std::vector<TokenIds> banned_runs = {};
};

Sampled sample_from(Given given, const SamplingParams& params) {
  SamplerScratch scratch;
  return sample(
      params,
      {given.logits, given.prompt, given.generated, given.banned, given.position, given.choice, given.banned_runs},
      scratch);
}

std::vector<float> normal_logits(size_t count, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(generator);
  return logits;
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Sampler, IsGreedyAtTemperatureZero) {
  EXPECT_EQ(sample_from({{1, 3, 2, 3}}, {.temperature = 0}).token, 1);
  EXPECT_EQ(sample_from({{-kInfinity, -5}}, {.temperature = 0}).token, 1);
}

TEST(Sampler, ChoosesOnlyAllowedTokens) {
  const std::vector<float> logits = normal_logits(1000);
  SamplingParams params{.temperature = 4, .allowed_token_ids = {999, 3, 500, 3}};
  std::set<TokenId> seen;
  for (uint64_t position = 0; position < 200; ++position)
    seen.insert(sample_from({.logits = logits, .position = position}, params).token);
  EXPECT_EQ(seen, (std::set<TokenId>{3, 500, 999}));
  // Neither bias nor penalties let others in, and a ban goes first.
  params = {.temperature = 0, .repetition_penalty = 0.5f, .logit_bias = {{7, 100}}, .allowed_token_ids = {3, 4}};
  EXPECT_EQ(sample_from({.logits = logits, .generated = {7, 8}, .banned = {4}}, params).token, 3);
  params.logprobs = 1;
  EXPECT_EQ(sample_from({.logits = logits, .banned = {3, 4}}, params), Sampled{}) << "none may follow";
}

TEST(Sampler, WeighsTheTokensThatItDrawsFrom) {
  using Weighed = std::pair<std::vector<float>, double>;
  const auto weigh = [](std::vector<float> logits, const SamplingParams& params, const TokenIds& banned = {}) {
    SamplerScratch scratch;
    const TokenWeights w =
        weigh_tokens(params, {.logits = logits, .prompt = {}, .generated = {}, .banned = banned}, scratch);
    return Weighed(std::vector<float>(w.weights.begin(), w.weights.end()), w.total);
  };
  EXPECT_EQ(weigh({1, 3, 2, 3}, {.temperature = 0}), Weighed({0, 1, 0, 0}, 1));
  EXPECT_EQ(weigh({1, 3, -kInfinity, 3}, {.temperature = 1, .top_k = 2}), Weighed({0, 1, 0, 1}, 2));
  EXPECT_EQ(weigh({1, 3, -kInfinity, 3}, {.temperature = 0.5f}, {1, 3}), Weighed({1, 0, 0, 0}, 1));
  EXPECT_EQ(weigh({1, 2}, {.allowed_token_ids = {0}}), Weighed({1, 0}, 1));
  EXPECT_EQ(weigh({1, 2}, {.allowed_token_ids = {0}}, {0}).second, 0) << "none may follow";
  EXPECT_THROW(weigh({-kInfinity, -kInfinity}, {}), Error);
}

TEST(Sampler, DoesNotCompleteABannedRun) {
  const std::vector<float> logits{0, 9, 8, 7, 6};
  const SamplingParams greedy{.temperature = 0};
  const auto next = [&](TokenIds generated) {
    return sample_from({.logits = logits,
                        .prompt = {2, 3},
                        .generated = std::move(generated),
                        .banned_runs = {{2, 3, 1}, {3, 3, 2}, {4, 1}, {4, 2}, {4, 3}, {4, 4}}},
                       greedy)
        .token;
  };
  EXPECT_EQ(next({}), 1) << "the prompt does not count";
  EXPECT_EQ(next({3}), 1);
  EXPECT_EQ(next({2, 3}), 2);
  EXPECT_EQ(next({0, 0, 2, 3}), 2);
  EXPECT_EQ(next({2, 3, 0}), 1);
  EXPECT_EQ(next({3, 3}), 1);
  EXPECT_EQ(next({1, 4}), 0);
  EXPECT_EQ(sample_from({.logits = logits, .banned_runs = {{1}, {2}}}, greedy).token, 3) << "one token: never";
  EXPECT_EQ(sample_from({.logits = logits, .banned_runs = {{0}, {1}, {2}, {3}, {4}}}, {}).token, kNoToken);
}

TEST(Sampler, IsGreedyIfOneTokenIsLeft) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = normal_logits(2000, seed);
    for (const SamplingParams& params :
         {SamplingParams{.top_k = 1}, SamplingParams{.top_p = 0}, SamplingParams{.top_p = 1e-6f},
          SamplingParams{.min_p = 1}, SamplingParams{.temperature = 1e-30f}, SamplingParams{.temperature = 1e-4f}}) {
      EXPECT_EQ(sample_from({.logits = logits, .position = seed}, params).token, argmax(logits));
    }
  }
}

TEST(Sampler, IsGreedyWithTopKOneAtAnyTemperature) {
  EXPECT_EQ(sample_from({{1.0f, 1.0000001f, 1.0f}}, {.temperature = 1e9f, .top_k = 1}).token, 1);
}

TEST(Sampler, KeepsTheLowestIdsOfEqualLogits) {
  const std::vector<float> logits(1000, 0.5f);
  std::set<TokenId> by_count, by_mass, all;
  for (uint64_t position = 0; position < 3000; ++position) {
    by_count.insert(sample_from({.logits = logits, .position = position}, {.top_k = 5}).token);
    by_mass.insert(sample_from({.logits = logits, .position = position}, {.top_p = 0.0045f}).token);
    all.insert(sample_from({.logits = logits, .position = position}, {.min_p = 1}).token);
  }
  EXPECT_EQ(by_count, (std::set<TokenId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(by_mass, by_count);
  EXPECT_GT(all.size(), 900u);
}

// Chi-square of 40,000 draws at consecutive positions against the exact probabilities.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const std::vector<double>& probabilities) {
  constexpr int kDraws = 40000;
  std::vector<int> drawn(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    ++drawn[sample_from({.logits = logits, .position = static_cast<uint64_t>(i)}, params).token];
  }
  double chi2 = 0;
  int bins = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (probabilities[i] == 0) {
      EXPECT_EQ(drawn[i], 0) << "token " << i;
      continue;
    }
    const double expected = probabilities[i] * kDraws;
    chi2 += (drawn[i] - expected) * (drawn[i] - expected) / expected;
    ++bins;
  }
  // Mean and deviation of chi-square with bins-1 degrees of freedom are bins-1 and sqrt(2(bins-1)).
  EXPECT_LT(chi2, bins - 1 + 4 * std::sqrt(2.0 * std::max(1, bins - 1)));
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(x / temperature));
  for (double& x : p) x /= sum;
  return p;
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0.3f, -1.0f, 2.0f, 0.0f, 1.5f, -kInfinity, 0.7f};
  expect_distribution(logits, {.seed = 11}, softmax(logits, 1));
  expect_distribution(logits, {.temperature = 0.5f, .seed = 12}, softmax(logits, 0.5));
  expect_distribution(logits, {.temperature = 3.0f, .seed = 13}, softmax(logits, 3));
  const std::vector<float> flat(600, 1.0f);  // several blocks
  expect_distribution(flat, {.seed = 14}, softmax(flat, 1));
}

TEST(Sampler, RenormalisesAfterEachFilter) {
  // Probabilities 0.4, 0.3, 0.2, 0.1.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  expect_distribution(logits, {.top_k = 2}, {4 / 7.0, 3 / 7.0, 0, 0});
  expect_distribution(logits, {.top_p = 0.8f}, {4 / 9.0, 3 / 9.0, 2 / 9.0, 0});
  expect_distribution(logits, {.min_p = 0.6f}, {4 / 7.0, 3 / 7.0, 0, 0});
  // Of 4/7 and 3/7 the first alone reaches 0.5; of all four it does not.
  expect_distribution(logits, {.top_k = 2, .top_p = 0.5f}, {1, 0, 0, 0});
  expect_distribution(logits, {.top_p = 0.5f}, {4 / 7.0, 3 / 7.0, 0, 0});
}

TEST(Sampler, KeepsTypicalTokens) {
  // One token of probability 0.6 and 8 of 0.05: entropy 1.5, surprises 0.51 and 3.0. The frequent one is nearer.
  std::vector<float> logits(9, std::log(0.05f));
  logits[0] = std::log(0.6f);
  std::vector<double> first(9, 0);
  first[0] = 1;
  expect_distribution(logits, {.typical_p = 0.5f}, first);
  // A token of 0.25 and 75 of 0.01: entropy 3.8, surprises 1.39 and 4.61. The rare ones are nearer.
  logits.assign(76, std::log(0.01f));
  logits[75] = std::log(0.25f);
  std::vector<double> rare(76, 1 / 75.0);
  rare[75] = 0;
  expect_distribution(logits, {.typical_p = 0.7495f}, rare);
}

TEST(Sampler, KeepsLogitsNearTheBest) {
  // Standard deviation 2 around 2.
  const std::vector<float> logits = {4, 0, 4, 0, -kInfinity};
  const double few = 1 / (2 + 2 * std::exp(-4.0));
  expect_distribution(logits, {.top_n_sigma = 1.9f}, {0.5, 0, 0.5, 0, 0});
  expect_distribution(logits, {.top_n_sigma = 2.1f}, {few, few * std::exp(-4.0), few, few * std::exp(-4.0), 0});
  expect_distribution(logits, {.temperature = 1000, .top_n_sigma = 1.9f}, {0.5, 0, 0.5, 0, 0});
}

TEST(Sampler, ExcludesTopChoicesAtRandom) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  expect_distribution(logits, {.xtc_probability = 1, .xtc_threshold = 0.25f}, {0, 0.3 / 0.6, 0.2 / 0.6, 0.1 / 0.6});
  expect_distribution(logits, {.xtc_probability = 1, .xtc_threshold = 0.15f}, {0, 0, 0.2 / 0.3, 0.1 / 0.3});
  expect_distribution(logits, {.xtc_probability = 1, .xtc_threshold = 0.35f}, {0.4, 0.3, 0.2, 0.1});  // one: it stays
  expect_distribution(logits, {.xtc_probability = 1, .xtc_threshold = 0}, {0, 0, 0, 1});
  expect_distribution(logits, {.xtc_probability = 0.5f, .xtc_threshold = 0.25f},
                      {0.2, 0.15 + 0.25, 0.1 + 0.2 / 1.2, 0.05 + 0.1 / 1.2});
}

TEST(Sampler, DrawsForXtcDoNotChangeTheOthers) {
  // Where XTC does not act, the token is the one drawn without it.
  const std::vector<float> logits = normal_logits(300);
  int same = 0;
  for (uint64_t position = 0; position < 400; ++position) {
    const Given given{.logits = logits, .position = position};
    const TokenId without = sample_from(given, {.seed = 5}).token;
    EXPECT_EQ(sample_from(given, {.xtc_probability = 1, .xtc_threshold = 0.6f, .seed = 5}).token, without);
    same += sample_from(given, {.xtc_probability = 0.5f, .xtc_threshold = 0.01f, .seed = 5}).token == without;
  }
  EXPECT_NEAR(same, 210, 40);
}

TEST(Sampler, AdaptsTheTemperatureToTheEntropy) {
  // Equal tokens have the largest entropy, so the temperature is the highest: nothing else shows at equal logits.
  const std::vector<float> flat = {1, 1, 1, -20}, steep = {9, 0, 0, 0};
  expect_distribution({0, 0}, {.temperature = 1, .dynatemp_range = 0.5f}, {0.5, 0.5});
  expect_distribution(steep, {.temperature = 1, .dynatemp_range = 1}, {1, 0, 0, 0});  // nearly no entropy
  expect_distribution(steep, {.temperature = 2, .dynatemp_range = 1, .dynatemp_exponent = 0}, softmax(steep, 3));
  // The entropy of 1, 1 and e^-1 relative to that of three equal tokens.
  const std::vector<float> some = {0, 0, -1};
  double entropy = 0;
  for (const double p : softmax(some, 1)) entropy -= p * std::log(p);
  const double share = entropy / std::log(3.0);
  expect_distribution(some, {.temperature = 1.5f, .dynatemp_range = 1.25f, .dynatemp_exponent = 2},
                      softmax(some, 0.25 + 2.5 * share * share));
  expect_distribution(flat, {.temperature = 2, .top_k = 3, .dynatemp_range = 2}, {1 / 3.0, 1 / 3.0, 1 / 3.0, 0});
}

TEST(Sampler, BiasesBansAndForces) {
  const std::vector<float> logits = normal_logits(50);
  const TokenId best = argmax(logits);
  for (uint64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(sample_from({.logits = logits, .position = position}, {.logit_bias = {{7, 100}}}).token, 7);
    EXPECT_NE(sample_from({.logits = logits, .position = position}, {.logit_bias = {{best, -100}}}).token, best);
    EXPECT_NE(sample_from({.logits = logits, .position = position}, {.logit_bias = {{best, -kInfinity}}}).token, best);
    EXPECT_NE(sample_from({.logits = logits, .banned = {best}, .position = position}, {}).token, best);
  }
  EXPECT_EQ(sample_from({.logits = logits, .banned = {7}}, {.logit_bias = {{7, 100}}}).token == 7, false);
}

TEST(Sampler, ReportsThatNoTokenIsLeft) {
  EXPECT_THROW(sample_from({{-kInfinity, -kInfinity}}, {}), Error);
  EXPECT_THROW(sample_from({{-kInfinity, -kInfinity}}, {.temperature = 0}), Error);
  EXPECT_THROW(sample_from({.logits = {1, 2}, .banned = {0, 1}}, {.logprobs = 1}), Error);
}

TEST(Sampler, RefusesNanEvenForBannedTokens) {
  EXPECT_THROW(sample_from({{1, std::nanf("")}}, {}), Error);
  EXPECT_THROW(sample_from({{1, std::nanf("")}}, {.temperature = 0}), Error);
  EXPECT_THROW(sample_from({.logits = {1, std::nanf("")}, .banned = {1}}, {.logprobs = 0}), Error);
}

TEST(Sampler, ReportsLogprobsOfTheOriginalLogits) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f), -kInfinity};
  const SamplingParams params{
      .temperature = 0.1f, .top_k = 1, .presence_penalty = 2, .logit_bias = {{0, -100}}, .logprobs = 8};
  const Sampled sampled = sample_from({.logits = logits, .generated = {1}}, params);
  EXPECT_EQ(sampled.token, 2);
  EXPECT_NEAR(sampled.logprob, std::log(0.2), 1e-6);
  ASSERT_EQ(sampled.top_logprobs.size(), 4u);  // the impossible token is left out
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sampled.top_logprobs[i].first, i);
    EXPECT_NEAR(sampled.top_logprobs[i].second, logits[i], 1e-6);
  }
}

TEST(Sampler, RanksTopLogprobsAndBreaksTiesByLowestId) {
  std::vector<float> logits = normal_logits(3000);
  for (float& x : logits) x = std::round(x);  // many ties
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const Sampled sampled = sample_from({.logits = logits}, {.temperature = 0, .logprobs = 20});
  ASSERT_EQ(sampled.top_logprobs.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sampled.top_logprobs[i].first, order[i]);
  EXPECT_EQ(sampled.top_logprobs[0].first, sampled.token);
  EXPECT_EQ(sampled.top_logprobs[0].second, sampled.logprob);
  EXPECT_TRUE(sample_from({.logits = logits}, {.logprobs = 0}).top_logprobs.empty());
}

TEST(Sampler, CountsPenaltiesInTheLastTokensOnly) {
  const Given given{.logits = {1.0f, 0.9f, 0.8f, 0.0f}, .prompt = {0, 1}, .generated = {2, 3}};
  SamplingParams params{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(sample_from(given, params).token, 0);  // all are halved
  params.repeat_last_n = 0;
  EXPECT_EQ(sample_from(given, params).token, 0);
  params.repeat_last_n = 3;  // 1, 2, 3
  EXPECT_EQ(sample_from(given, params).token, 0);
  params.repetition_penalty = 0.5f;  // now repetition is rewarded: doubled
  EXPECT_EQ(sample_from(given, params).token, 1);
  params.repeat_last_n = 2;
  EXPECT_EQ(sample_from(given, params).token, 2);
  params.repeat_last_n = -1;
  EXPECT_EQ(sample_from(given, params).token, 0);
}

TEST(Sampler, PenaltiesActOnWhatTheConstraintLeavesFree) {
  const SamplingParams all{.temperature = 0,
                           .repetition_penalty = 2,
                           .frequency_penalty = 1,
                           .presence_penalty = 1,
                           .dry_multiplier = 5,
                           .dry_allowed_length = 1};
  const TokenIds prompt{1, 0}, generated{1, 0, 1}, counted{1, -3, 1};
  SamplerScratch scratch;
  const auto chosen = [&](auto&& change) {
    std::vector<float> logits{1.0f, 0.9f, 0.2f};
    SampleRow row{.logits = logits, .prompt = prompt, .generated = generated, .banned = {}};
    change(row);
    return sample(all, row, scratch).token;
  };
  const uint32_t without_0 = 0b110, without_1 = 0b101;
  EXPECT_EQ(chosen([](SampleRow&) {}), 2);
  EXPECT_EQ(chosen([](SampleRow& row) { row.penalized = false; }), 0);
  EXPECT_EQ(chosen([&](SampleRow& row) { row.penalized_tokens = {&without_0, 1}; }), 0);
  EXPECT_EQ(chosen([&](SampleRow& row) { row.penalized_tokens = {&without_1, 1}; }), 1);
  // Of token 0, only the repetition of the prompt counts now.
  const SamplingParams frequency{.temperature = 0, .frequency_penalty = 1};
  std::vector<float> logits{1.0f, 0.9f, 0.2f};
  EXPECT_EQ(
      sample(frequency, {.logits = logits, .prompt = prompt, .generated = generated, .banned = {}, .counted = counted},
             scratch)
          .token,
      0);
}

TEST(Sampler, DrawsDifferByChoiceAndSeed) {
  const std::vector<float> logits(1000, 0.0f);
  std::set<TokenId> tokens;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      tokens.insert(sample_from({.logits = logits, .choice = choice}, {.seed = seed}).token);
    }
  }
  EXPECT_GE(tokens.size(), 14u);
}

// Quire promises the same tokens on every machine and in every version.
TEST(Sampler, DrawsTheSameTokensInEveryVersion) {
  std::vector<float> logits(4096);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 2654435761u >> 7) % 4096) / 256.0f;
  TokenIds drawn;
  for (uint64_t position = 0; position < 6; ++position) {
    drawn.push_back(sample_from({.logits = logits, .position = position}, {.temperature = 0.8f, .seed = 42}).token);
    drawn.push_back(sample_from({.logits = logits, .position = position},
                                {.temperature = 1.3f, .top_k = 100, .top_p = 0.9f, .min_p = 0.02f, .seed = 42})
                        .token);
  }
  EXPECT_EQ(drawn, (TokenIds{1891, 1891, 1281, 1098, 2716, 2699, 2760, 2745, 3416, 3248, 1144, 915}));
}

}  // namespace
}  // namespace quire
