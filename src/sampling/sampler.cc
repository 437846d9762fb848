#include "sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "sampling/distribution.h"
#include "sampling/exact_math.h"
#include "sampling/mirostat.h"
#include "sampling/penalties.h"
#include "sampling/philox.h"
#include "sampling/softmax.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Keeps logits within top_n_sigma standard deviations of the best one (Tang et al. 2024).
void keep_near_best(Distribution& d, float peak, const SamplingParams& params) {
  const double range = static_cast<double>(params.top_n_sigma) * standard_deviation(d.logits, peak);
  d.keep_from(static_cast<float>(static_cast<double>(peak) - range), d.logits);
}

// Locally typical sampling (Meister et al. 2022): keeps the mass p whose surprisal -log p is closest to the entropy,
// its mean. With x = log p + constant, the distance is |x - mean(x)|, so no logarithm is needed.
void keep_typical(Distribution& d, float peak, float temperature, float p, SamplerScratch& scratch) {
  std::vector<float>& scores = scratch.scores;
  scores.resize(d.logits.size());
  double mean = 0;
  for (size_t i = 0; i < d.logits.size(); ++i) {
    if (d.weights[i] == 0) continue;
    scores[i] = (d.logits[i] - peak) / temperature;
    mean += static_cast<double>(d.weights[i]) * static_cast<double>(scores[i]);
  }
  const auto center = static_cast<float>(mean / d.total);
  for (float& score : scores) score = -std::fabs(score - center);
  d.keep({d.logits.size(), static_cast<double>(p) * d.total}, scores, scratch);
}

// XTC (p-e-w, text-generation-webui 6335): of the tokens that reach the threshold only the last-ranked one stays.
void exclude_top_choices(Distribution& d, float threshold) {
  const double floor = static_cast<double>(threshold) * d.total;
  const auto for_each_top = [&](auto f) {
    for (size_t b = 0; b < d.block_mass.size(); ++b) {
      if (d.block_mass[b] < floor) continue;
      const size_t end = std::min((b + 1) * kWeightBlock, d.weights.size());
      for (size_t i = b * kWeightBlock; i < end; ++i) {
        if (d.weights[i] > 0 && static_cast<double>(d.weights[i]) >= floor) f(i);
      }
    }
  };
  std::optional<size_t> last;
  for_each_top([&](size_t i) {
    if (!last || d.logits[i] <= d.logits[*last]) last = i;
  });
  for_each_top([&](size_t i) {
    if (i != last) d.weights[i] = 0;
  });
  d.add_up();
}

// The temperature for the tokens left, whose weights are those of temperature 1.
float dynamic_temperature(const Distribution& d, float peak, const SamplingParams& params) {
  size_t count = 0;
  double sum = 0;
  for (size_t i = 0; i < d.logits.size(); ++i) {
    if (d.weights[i] == 0) continue;
    ++count;
    sum += static_cast<double>(d.weights[i]) * static_cast<double>(d.logits[i] - peak);
  }
  if (count < 2) return params.temperature;
  const double entropy = log2_exact(d.total) - sum / d.total * std::numbers::log2e;
  const double share = std::clamp(entropy / log2_exact(static_cast<double>(count)), 0.0, 1.0);
  const double low =
      std::max(0.0, static_cast<double>(params.temperature) - static_cast<double>(params.dynatemp_range));
  const double high = static_cast<double>(params.temperature) + static_cast<double>(params.dynatemp_range);
  const double temperature = low + (high - low) * power_exact(share, static_cast<double>(params.dynatemp_exponent));
  return std::max(static_cast<float>(temperature), std::numeric_limits<float>::min());
}

// The tokens that the parameters leave, after the temperature.
Distribution cut(const SamplingParams& params, const SampleRow& row, float peak, SamplerScratch& scratch) {
  const bool dynamic = params.dynatemp_range > 0.0f;
  const float temperature = dynamic ? 1.0f : params.temperature;
  Distribution d(row.logits, peak, temperature, scratch);
  if (params.top_n_sigma > 0.0f) keep_near_best(d, peak, params);
  if (params.typical_p < 1.0f) keep_typical(d, peak, temperature, params.typical_p, scratch);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < d.logits.size()) {
    d.keep({static_cast<size_t>(params.top_k), std::numeric_limits<double>::infinity()}, d.logits, scratch);
  }
  if (params.top_p < 1.0f) d.keep({d.logits.size(), static_cast<double>(params.top_p) * d.total}, d.logits, scratch);
  if (params.min_p > 0.0f) d.keep_from(params.min_p * find_peak(d.weights).logit, d.weights);
  if (uniform_at(params.seed, row.choice, row.position, Draw::kXtc) < static_cast<double>(params.xtc_probability))
    exclude_top_choices(d, params.xtc_threshold);
  if (dynamic) d.set_temperature(dynamic_temperature(d, peak, params));
  return d;
}

// The best token once the logits are adjusted; nothing if the request allows none.
std::optional<Peak> find_best(const SamplingParams& params, const SampleRow& row) {
  const Peak peak = find_peak(row.logits);
  if (peak.logit > -kInfinity) return peak;
  if (!params.allowed_token_ids.empty() || !row.mask.empty() || !row.banned_runs.empty()) return std::nullopt;
  throw invalid("no token can follow: all {} logits are -infinity", row.logits.size());
}

std::vector<std::pair<TokenId, float>> most_probable(std::span<const float> logits, size_t count) {
  std::vector<std::pair<TokenId, float>> best;
  if (count == 0) return best;
  const auto ranks_before = [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  };
  // A heap with the worst of the best in front. Ids ascend, so later tokens must be better, not equal.
  best.reserve(std::min(count, logits.size()));
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == -kInfinity || (best.size() == count && !(logits[i] > best.front().second))) continue;
    if (best.size() == count) {
      std::pop_heap(best.begin(), best.end(), ranks_before);
      best.pop_back();
    }
    best.emplace_back(static_cast<TokenId>(i), logits[i]);
    std::push_heap(best.begin(), best.end(), ranks_before);
  }
  std::sort_heap(best.begin(), best.end(), ranks_before);
  return best;
}

void add_logprobs(std::span<const float> logits, int top, Sampled& sampled) {
  const double log_sum = log_sum_exp(logits, find_peak(logits).logit);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  sampled.logprob = logprob(logits[static_cast<size_t>(sampled.token)]);
  sampled.top_logprobs = most_probable(logits, static_cast<size_t>(top));
  for (auto& [token, value] : sampled.top_logprobs) value = logprob(value);
}

}  // namespace

void SamplerScratch::reserve_counts(size_t vocab) {
  if (seen.size() >= vocab) return;
  distinct.reserve(vocab);
  occurrences.resize(vocab, 0);
  seen.resize(vocab, 0);
}

Sampled describe_token(std::span<const float> logits, TokenId token, int top) {
  Sampled described{.token = token};
  add_logprobs(logits, top, described);
  return described;
}

Sampled sample(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  assert(!row.logits.empty() && row.vocab_size() <= kMaxVocab);
  if (params.logprobs) {
    assert(row.ids.empty());
    scratch.raw.assign(row.logits.begin(), row.logits.end());
    find_peak(scratch.raw);  // NaN is an error even if a ban would hide it
  }
  adjust_logits(params, row, scratch);
  const std::optional<Peak> best = find_best(params, row);
  Sampled sampled;
  if (!best) return sampled;
  const auto uniform = [&] { return uniform_at(params.seed, row.choice, row.position); };
  if (params.temperature == 0.0f) {
    sampled.token = row.token_at(static_cast<size_t>(best->token));
  } else if (row.drawn != kNoToken) {
    sampled.token = row.drawn;
  } else if (uses_mirostat(params)) {
    Distribution d(row.logits, best->logit, params.temperature, scratch);
    sampled.mirostat_mu = row.mirostat_mu;
    sampled.token = draw_by_mirostat(d, params, uniform(), sampled.mirostat_mu, scratch);
  } else {
    sampled.token = row.token_at(static_cast<size_t>(cut(params, row, best->logit, scratch).draw(uniform())));
  }
  if (params.logprobs) add_logprobs(scratch.raw, *params.logprobs, sampled);
  return sampled;
}

TokenWeights weigh_tokens(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  assert(!row.logits.empty() && row.logits.size() <= kMaxVocab && row.ids.empty() && !uses_mirostat(params));
  adjust_logits(params, row, scratch);
  const std::optional<Peak> best = find_best(params, row);
  if (!best) return {};
  if (params.temperature > 0.0f) {
    const Distribution d = cut(params, row, best->logit, scratch);
    return {d.weights, d.total};
  }
  scratch.weights.assign(row.logits.size(), 0.0f);
  scratch.weights[static_cast<size_t>(best->token)] = 1;
  return {scratch.weights, 1};
}

}  // namespace quire
