// Compares the sampler with a plain one that sorts everything, applies filters one by one and sums from the front.
#include "sampling/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "sampling/philox.h"
#include "sampling/softmax.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  std::vector<float> logits;
  TokenIds prompt, generated, banned;
  std::vector<TokenIds> banned_runs;
  SamplingParams params;
  uint64_t position;
};

float one_of(std::vector<float> values) { return *rc::gen::elementOf(values); }

Case any_bans() {
  Case c;
  // Up to three blocks; coarse logits give ties, a wide spread gives weights of 0.
  const auto vocab = *rc::gen::inRange<size_t>(2, *rc::gen::elementOf(std::vector<size_t>{5, 40, 800}));
  const float spread = one_of({0.001f, 0.25f, 1.0f, 5.0f});
  const auto steps = *rc::gen::container<std::vector<int>>(vocab, rc::gen::inRange(-20, 20));
  for (const int step : steps) c.logits.push_back(step == -20 ? -kInfinity : static_cast<float>(step) * spread);
  c.logits[*rc::gen::inRange<size_t>(0, vocab)] = 2.0f;  // one is finite
  const auto tokens = rc::gen::container<TokenIds>(rc::gen::inRange<TokenId>(-1, static_cast<TokenId>(vocab)));
  c.prompt = *tokens;
  c.generated = *tokens;
  if (*rc::gen::inRange(0, 4) == 0) c.banned = {*rc::gen::inRange<TokenId>(0, static_cast<TokenId>(vocab))};
  SamplingParams& p = c.params;
  const auto token = rc::gen::inRange<TokenId>(0, static_cast<TokenId>(vocab));
  if (*rc::gen::inRange(0, 4) == 0)
    c.banned_runs = *rc::gen::container<std::vector<TokenIds>>(rc::gen::nonEmpty(rc::gen::container<TokenIds>(token)));
  if (*rc::gen::inRange(0, 2) == 0 && !c.generated.empty() && c.generated.back() >= 0)  // one that is about to come
    c.banned_runs.push_back({c.generated.back(), *token});
  if (*rc::gen::inRange(0, 4) == 0) p.allowed_token_ids = *rc::gen::container<TokenIds>(token);
  p.allowed_token_ids.resize(std::min(p.allowed_token_ids.size(), vocab));
  p.temperature = one_of({0.0f, 0.2f, 0.7f, 1.0f, 1.0f, 4.0f, 1000.0f});
  p.typical_p = one_of({1.0f, 1.0f, 0.0f, 0.3f, 0.9f});
  p.top_k = *rc::gen::elementOf(std::vector<int>{0, -1, 1, 2, 7, 100, 1000000});
  p.top_p = one_of({1.0f, 1.0f, 0.0f, 0.1f, 0.5f, 0.95f, 0.999999f});
  p.min_p = one_of({0.0f, 0.0f, 0.05f, 0.5f, 1.0f});
  p.repetition_penalty = one_of({1.0f, 1.0f, 1.3f, 0.7f});
  p.frequency_penalty = one_of({0.0f, 0.0f, 0.5f, -1.5f});
  p.presence_penalty = one_of({0.0f, 0.0f, 0.5f, -1.5f});
  p.repeat_last_n = *rc::gen::elementOf(std::vector<int>{-1, -1, 0, 1, 5, 30});
  if (*rc::gen::inRange(0, 3) == 0) {
    p.logit_bias = {{*rc::gen::inRange<TokenId>(0, static_cast<TokenId>(vocab)), one_of({-100, -1, 3, 100})}};
  }
  p.seed = *rc::gen::arbitrary<uint64_t>();
  c.position = *rc::gen::arbitrary<uint32_t>();
  return c;
}

std::vector<float> adjusted_plainly(const Case& c) {
  std::vector<float> logits = c.logits;
  const SamplingParams& p = c.params;
  for (const auto& [token, bias] : p.logit_bias) logits[token] += bias;
  TokenIds history = c.prompt;
  history.insert(history.end(), c.generated.begin(), c.generated.end());
  const size_t window = p.repeat_last_n < 0 ? history.size() : std::min<size_t>(p.repeat_last_n, history.size());
  std::map<TokenId, std::pair<int, int>> counts;  // anywhere, in the answer
  for (size_t i = history.size() - window; i < history.size(); ++i) {
    ++counts[history[i]].first;
    if (i >= c.prompt.size()) ++counts[history[i]].second;
  }
  for (const auto& [token, count] : counts) {
    if (token < 0) continue;
    float& x = logits[token];
    x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (count.second > 0) x = (x - p.frequency_penalty * static_cast<float>(count.second)) - p.presence_penalty;
  }
  for (size_t i = 0; i < logits.size() && !p.allowed_token_ids.empty(); ++i) {
    if (std::ranges::find(p.allowed_token_ids, static_cast<TokenId>(i)) == p.allowed_token_ids.end())
      logits[i] = -kInfinity;
  }
  for (const TokenId token : c.banned) logits[token] = -kInfinity;
  for (const TokenIds& run : c.banned_runs) {
    TokenIds completed = c.generated;
    completed.push_back(run.back());
    if (completed.size() >= run.size() && std::equal(run.rbegin(), run.rend(), completed.rbegin()))
      logits[run.back()] = -kInfinity;
  }
  return logits;
}

bool any_left(const Case& c) {
  const std::vector<float> logits = adjusted_plainly(c);
  return std::any_of(logits.begin(), logits.end(), [](float x) { return x > -kInfinity; });
}

// A random value that leaves at least one token.
Case any_case() {
  Case c = any_bans();
  if (!any_left(c)) c.banned.clear(), c.banned_runs.clear(), c.params.allowed_token_ids.clear();
  return c;
}

// Token ids by `score`, best first: the shortest prefix that reaches the limit.
void cut_plainly(TokenIds& alive, const std::vector<float>& weights, const std::vector<float>& score, size_t count,
                 double share) {
  std::sort(alive.begin(), alive.end(),
            [&](TokenId a, TokenId b) { return score[a] > score[b] || (score[a] == score[b] && a < b); });
  double total = 0, mass = 0;
  for (const TokenId t : alive) total += weights[t];
  for (size_t i = 0; i < alive.size(); ++i) {
    mass += weights[alive[i]];
    if (i + 1 >= count || mass >= share * total) return alive.resize(i + 1);
  }
}

TokenId sample_plainly(const Case& c) {
  const SamplingParams& p = c.params;
  const std::vector<float> logits = adjusted_plainly(c);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (p.temperature == 0) return static_cast<TokenId>(best - logits.begin());
  std::vector<float> weights(logits.size());
  compute_weights(logits, *best, p.temperature, weights);
  TokenIds alive;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0) alive.push_back(static_cast<TokenId>(i));
  }
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (p.typical_p < 1) {
    double total = 0, mean = 0;
    std::vector<float> x(logits.size());
    for (const TokenId t : alive) {
      x[t] = (logits[t] - *best) / p.temperature;
      total += weights[t];
      mean += static_cast<double>(weights[t]) * x[t];
    }
    for (float& v : x) v = -std::fabs(v - static_cast<float>(mean / total));
    cut_plainly(alive, weights, x, kAll, p.typical_p);
  }
  if (p.top_k > 0) cut_plainly(alive, weights, logits, p.top_k, kNever);
  if (p.top_p < 1) cut_plainly(alive, weights, logits, kAll, p.top_p);
  float most = 0;
  for (const TokenId t : alive) most = std::max(most, weights[t]);
  std::erase_if(alive, [&](TokenId t) { return weights[t] < p.min_p * most; });
  std::sort(alive.begin(), alive.end());
  double total = 0, mass = 0;
  for (const TokenId t : alive) total += weights[t];
  const double target = uniform_at(p.seed, 0, c.position) * total;
  for (const TokenId t : alive) {
    mass += weights[t];
    if (mass > target) return t;
  }
  return kNoToken;
}

TokenId sample_cleverly(Case c, SamplerScratch& scratch) {
  return sample(c.params, {c.logits, c.prompt, c.generated, c.banned, c.position, 0, c.banned_runs}, scratch).token;
}

RC_GTEST_PROP(Sampler, DrawsTheTokenThatThePlainSamplerDraws, ()) {
  for (int i = 0; i < 10; ++i) {
    const Case c = any_case();
    SamplerScratch scratch;
    RC_ASSERT(sample_cleverly(c, scratch) == sample_plainly(c));
  }
}

RC_GTEST_PROP(Sampler, DoesNotDependOnEarlierUsesOfTheScratch, ()) {
  SamplerScratch used;
  for (int i = 0; i < 10; ++i) {
    const Case c = any_case();
    SamplerScratch fresh;
    RC_ASSERT(sample_cleverly(c, used) == sample_cleverly(c, fresh));
  }
}

}  // namespace
}  // namespace quire
