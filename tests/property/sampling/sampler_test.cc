// Compares the sampler with a plain one that sorts everything, applies filters one by one and sums from the front.
#include "sampling/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "sampling/dry.h"
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
  double mirostat_mu = 0;
};

// The text of a token, for sequence breakers.
std::string_view text_of(TokenId token) {
  static constexpr std::string_view kTexts[] = {"a", "b", "ab", "ba", "c", "", "aab"};
  return token < 0 ? "" : kTexts[static_cast<size_t>(token) % std::size(kTexts)];
}

float one_of(std::vector<float> values) { return *rc::gen::elementOf(values); }

Case any_bans() {
  Case c;
  // Up to three blocks; coarse logits give ties, a wide spread gives weights of 0.
  const auto vocab = *rc::gen::inRange<size_t>(2, *rc::gen::elementOf(std::vector<size_t>{5, 40, 800}));
  const float spread = one_of({0.001f, 0.25f, 1.0f, 5.0f});
  const auto steps = *rc::gen::container<std::vector<int>>(vocab, rc::gen::inRange(-20, 20));
  for (const int step : steps) c.logits.push_back(step == -20 ? -kInfinity : static_cast<float>(step) * spread);
  c.logits[*rc::gen::inRange<size_t>(0, vocab)] = 2.0f;                                         // one is finite
  const auto most = *rc::gen::elementOf(std::vector<TokenId>{2, static_cast<TokenId>(vocab)});  // few: repetitions
  const auto tokens = rc::gen::container<TokenIds>(rc::gen::inRange<TokenId>(-1, most));
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
  p.top_n_sigma = one_of({0.0f, -1.0f, 0.0f, 0.7f, 1.3f, 3.1f});
  p.xtc_probability = one_of({0.0f, 0.0f, 0.5f, 1.0f});
  p.xtc_threshold = one_of({0.0f, 0.01f, 0.1f, 0.6f});
  p.dynatemp_range = one_of({0.0f, 0.0f, 0.0f, 0.5f, 3.0f});
  p.dynatemp_exponent = one_of({0.0f, 0.7f, 1.0f, 3.0f});
  p.mirostat = *rc::gen::elementOf(std::vector<int>{0, 0, 0, 1, 2});
  p.mirostat_tau = one_of({0.3f, 3.0f, 5.0f});
  c.mirostat_mu = one_of({-0.3f, 0.37f, 1.1f, 3.3f, 9.7f, 2000.0f});
  p.dry_multiplier = one_of({0.0f, 0.5f, 3.0f});
  p.dry_base = one_of({1.0f, 1.5f, 2.0f});
  p.dry_allowed_length = *rc::gen::elementOf(std::vector<int>{1, 2, 2, 4});
  p.dry_penalty_last_n = *rc::gen::elementOf(std::vector<int>{-1, -1, 0, 1, 7, 30});
  p.dry_sequence_breakers =
      *rc::gen::elementOf(std::vector<std::vector<std::string>>{{}, {"c"}, {"aba"}, {"bb", "ca"}, {"abab", "cc", "b"}});
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

// Whether a breaker that begins before offset `end` ends after offset `begin`, but not after `end`.
bool breaker_ends_in(const std::string& text, size_t begin, size_t end, const SamplingParams& p) {
  return std::ranges::any_of(p.dry_sequence_breakers, [&](const std::string& breaker) {
    for (size_t at = text.find(breaker); at != text.npos; at = text.find(breaker, at + 1)) {
      if (at + breaker.size() > begin && at + breaker.size() <= end) return true;
    }
    return false;
  });
}

// DRY as its parameters are documented: tries every length at every place.
void penalize_repetitions_plainly(const Case& c, std::vector<float>& logits) {
  const SamplingParams& p = c.params;
  TokenIds history = c.prompt;
  history.insert(history.end(), c.generated.begin(), c.generated.end());
  std::string text;
  size_t run = 0;
  for (const TokenId token : history) {
    const size_t begin = text.size();
    text += text_of(token);
    run = breaker_ends_in(text, begin, text.size(), p) ? 0 : run + 1;
  }
  if (p.dry_penalty_last_n >= 0 && history.size() > static_cast<size_t>(p.dry_penalty_last_n))
    history.erase(history.begin(), history.end() - p.dry_penalty_last_n);
  for (TokenId token = 0; static_cast<size_t>(token) < logits.size(); ++token) {
    size_t longest = 0;
    for (size_t i = 0; i < history.size(); ++i) {
      for (size_t n = 1; history[i] == token && n <= std::min(i, run); ++n) {
        if (std::equal(history.begin() + i - n, history.begin() + i, history.end() - n)) longest = std::max(longest, n);
      }
    }
    if (longest < static_cast<size_t>(p.dry_allowed_length)) continue;
    const std::string longer = text + std::string(text_of(token));
    if (breaker_ends_in(longer, text.size(), longer.size(), p)) continue;
    logits[token] -=
        static_cast<float>(p.dry_multiplier * std::pow(double{p.dry_base}, longest - p.dry_allowed_length));
  }
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
  penalize_repetitions_plainly(c, logits);
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

constexpr size_t kAll = std::numeric_limits<size_t>::max();
constexpr double kNever = std::numeric_limits<double>::infinity();

double sum_of(const TokenIds& alive, const std::vector<float>& weights) {
  double total = 0;
  for (const TokenId t : alive) total += weights[t];
  return total;
}

void keep_near_best_plainly(TokenIds& alive, const std::vector<float>& logits, float sigmas) {
  double count = 0, mean = 0, variance = 0;
  for (const float x : logits) count += x > -kInfinity;
  for (const float x : logits) mean += x > -kInfinity ? x / count : 0;
  for (const float x : logits) variance += x > -kInfinity ? (x - mean) * (x - mean) / count : 0;
  const float best = *std::max_element(logits.begin(), logits.end());
  std::erase_if(alive, [&](TokenId t) { return logits[t] < best - sigmas * std::sqrt(variance); });
}

void keep_typical_plainly(TokenIds& alive, const std::vector<float>& weights, const std::vector<float>& logits,
                          float temperature, float p) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double mean = 0;
  std::vector<float> x(logits.size());
  for (const TokenId t : alive) {
    x[t] = (logits[t] - best) / temperature;
    mean += static_cast<double>(weights[t]) * x[t];
  }
  const double total = sum_of(alive, weights);
  for (float& v : x) v = -std::fabs(v - static_cast<float>(mean / total));
  cut_plainly(alive, weights, x, kAll, p);
}

void exclude_top_choices_plainly(TokenIds& alive, const std::vector<float>& weights, const std::vector<float>& logits,
                                 float threshold) {
  cut_plainly(alive, weights, logits, kAll, kNever);  // sorts
  const double floor = static_cast<double>(threshold) * sum_of(alive, weights);
  const auto top = std::ranges::count_if(alive, [&](TokenId t) { return weights[t] >= floor; });
  if (top > 1) alive.erase(alive.begin(), alive.begin() + top - 1);
}

// The weights are those of temperature 1, e^(x - best).
float dynamic_temperature_plainly(const TokenIds& alive, const std::vector<float>& weights,
                                  const std::vector<float>& logits, const SamplingParams& p) {
  const float best = *std::max_element(logits.begin(), logits.end());
  const double total = sum_of(alive, weights);
  double entropy = std::log(total);
  for (const TokenId t : alive) entropy -= weights[t] * static_cast<double>(logits[t] - best) / total;
  if (alive.size() < 2) return p.temperature;
  const double share = std::clamp(entropy / std::log(static_cast<double>(alive.size())), 0.0, 1.0);
  const double low = std::max(0.0, double{p.temperature} - p.dynatemp_range);
  return static_cast<float>(low +
                            (double{p.temperature} + p.dynatemp_range - low) * std::pow(share, p.dynatemp_exponent));
}

// The paper's formulas, for the tokens `alive`, best first.
size_t mirostat_count_plainly(const TokenIds& alive, const std::vector<float>& weights,
                              const std::vector<float>& logits, const Case& c) {
  if (c.params.mirostat == 2) {
    const double total = sum_of(alive, weights);
    size_t count = 1;
    while (count < alive.size() && -std::log2(weights[alive[count]] / total) <= c.mirostat_mu) ++count;
    return count;
  }
  if (alive.size() == 1) return 1;
  long double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < std::min<size_t>(alive.size(), 100); ++i) {
    const long double rank = std::log((i + 2.0L) / (i + 1.0L));
    products += rank * (static_cast<long double>(logits[alive[i]]) - logits[alive[i + 1]]) / c.params.temperature;
    squares += rank * rank;
  }
  const long double s = products / squares, e = s - 1, n = logits.size();
  const long double k = std::pow(e * std::exp2(static_cast<long double>(c.mirostat_mu)) / (1 - std::pow(n, -e)), 1 / s);
  return k >= alive.size() ? alive.size() : std::max<size_t>(1, static_cast<size_t>(k));
}

struct Drawn {
  TokenId token = kNoToken;
  double mirostat_mu = 0;
};

Drawn sample_plainly(const Case& c) {
  const SamplingParams& p = c.params;
  const std::vector<float> logits = adjusted_plainly(c);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (p.temperature == 0) return {static_cast<TokenId>(best - logits.begin())};
  const bool dynamic = p.dynatemp_range > 0 && p.mirostat == 0;
  const float temperature = dynamic ? 1.0f : p.temperature;
  std::vector<float> weights(logits.size());
  compute_weights(logits, *best, temperature, weights);
  TokenIds alive;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0) alive.push_back(static_cast<TokenId>(i));
  }
  if (p.mirostat != 0) {
    cut_plainly(alive, weights, logits, kAll, kNever);  // sorts
    alive.resize(mirostat_count_plainly(alive, weights, logits, c));
  } else {
    if (p.top_n_sigma > 0) keep_near_best_plainly(alive, logits, p.top_n_sigma);
    if (p.typical_p < 1) keep_typical_plainly(alive, weights, logits, temperature, p.typical_p);
    if (p.top_k > 0) cut_plainly(alive, weights, logits, p.top_k, kNever);
    if (p.top_p < 1) cut_plainly(alive, weights, logits, kAll, p.top_p);
    float most = 0;
    for (const TokenId t : alive) most = std::max(most, weights[t]);
    std::erase_if(alive, [&](TokenId t) { return weights[t] < p.min_p * most; });
    if (uniform_at(p.seed, 0, c.position, Draw::kXtc) < p.xtc_probability)
      exclude_top_choices_plainly(alive, weights, logits, p.xtc_threshold);
  }
  if (dynamic) {
    std::vector<float> left(logits.size(), -kInfinity);
    for (const TokenId t : alive) left[t] = logits[t];
    const float t = std::max(dynamic_temperature_plainly(alive, weights, logits, p), std::numeric_limits<float>::min());
    compute_weights(left, *std::max_element(left.begin(), left.end()), t, weights);
  }
  std::sort(alive.begin(), alive.end());
  const double total = sum_of(alive, weights), target = uniform_at(p.seed, 0, c.position) * total;
  double mass = 0;
  for (const TokenId t : alive) {
    mass += weights[t];
    if (mass <= target) continue;
    const double surprise = -std::log2(weights[t] / total);
    return {t, p.mirostat == 0 ? 0 : c.mirostat_mu - p.mirostat_eta * (surprise - p.mirostat_tau)};
  }
  return {};
}

Drawn sample_cleverly(Case c, SamplerScratch& scratch) {
  const DryBreakers breakers{prepare_stops(c.params.dry_sequence_breakers), text_of};
  DryRun run(breakers);
  for (const TokenIds* part : {&c.prompt, &c.generated}) {
    for (const TokenId token : *part) run.push(token);
  }
  const Sampled sampled = sample(c.params,
                                 {.logits = c.logits,
                                  .prompt = c.prompt,
                                  .generated = c.generated,
                                  .banned = c.banned,
                                  .position = c.position,
                                  .banned_runs = c.banned_runs,
                                  .dry_run = &run,
                                  .mirostat_mu = c.mirostat_mu},
                                 scratch);
  return {sampled.token, sampled.mirostat_mu};
}

RC_GTEST_PROP(Sampler, DrawsTheTokenThatThePlainSamplerDraws, ()) {
  for (int i = 0; i < 10; ++i) {
    const Case c = any_case();
    SamplerScratch scratch;
    const Drawn clever = sample_cleverly(c, scratch), plain = sample_plainly(c);
    RC_ASSERT(clever.token == plain.token);
    RC_ASSERT(std::fabs(clever.mirostat_mu - plain.mirostat_mu) < 1e-9);
  }
}

RC_GTEST_PROP(Sampler, DoesNotDependOnEarlierUsesOfTheScratch, ()) {
  SamplerScratch used;
  for (int i = 0; i < 10; ++i) {
    const Case c = any_case();
    SamplerScratch fresh;
    const Drawn again = sample_cleverly(c, used), first = sample_cleverly(c, fresh);
    RC_ASSERT(again.token == first.token);
    RC_ASSERT(again.mirostat_mu == first.mirostat_mu);
  }
}

}  // namespace
}  // namespace quire
