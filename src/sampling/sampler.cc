#include "sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "sampling/cut.h"
#include "sampling/penalties.h"
#include "sampling/philox.h"
#include "sampling/softmax.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The tokens that may still be drawn and their weights. A removed token has weight 0.
struct Distribution {
  std::span<float> weights;
  std::vector<double>& block_mass;
  double total;

  void keep(Cut cut, std::span<const float> scores) {
    apply_cut(cut, scores, weights);
    total = sum_blocks(weights, block_mass);
  }

  TokenId draw(double uniform) const {
    // Below total even after rounding, because uniform is at most 1 - 2^-53.
    double target = uniform * total;
    size_t b = 0;
    for (; block_mass[b] <= target; ++b) target -= block_mass[b];
    size_t i = b * kWeightBlock;
    for (; static_cast<double>(weights[i]) <= target; ++i) target -= static_cast<double>(weights[i]);
    return static_cast<TokenId>(i);
  }
};

// Locally typical sampling (Meister et al. 2022): keeps the mass p whose surprisal -log p is closest to the entropy,
// its mean. With x = log p + constant, the distance is |x - mean(x)|, so no logarithm is needed.
void keep_typical(Distribution& d, std::span<const float> logits, float peak, const SamplingParams& params,
                  SamplerScratch& scratch) {
  std::vector<float>& scores = scratch.scores;
  scores.resize(logits.size());
  double mean = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (d.weights[i] == 0) continue;
    scores[i] = (logits[i] - peak) / params.temperature;
    mean += static_cast<double>(d.weights[i]) * static_cast<double>(scores[i]);
  }
  const auto center = static_cast<float>(mean / d.total);
  for (float& score : scores) score = -std::fabs(score - center);
  const CutLimit limit{logits.size(), static_cast<double>(params.typical_p) * d.total};
  d.keep(find_cut(scores, d.weights, limit, scratch), scores);
}

TokenId draw(const SamplingParams& params, const SampleRow& row, float peak, SamplerScratch& scratch) {
  const std::span<const float> logits = row.logits;
  scratch.weights.resize(logits.size());
  compute_weights(logits, peak, params.temperature, scratch.weights);
  Distribution d{scratch.weights, scratch.block_mass, sum_blocks(scratch.weights, scratch.block_mass)};

  if (params.typical_p < 1.0f) keep_typical(d, logits, peak, params, scratch);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size()) {
    const CutLimit limit{static_cast<size_t>(params.top_k), std::numeric_limits<double>::infinity()};
    d.keep(find_cut(logits, d.weights, limit, scratch), logits);
  }
  if (params.top_p < 1.0f) {
    const CutLimit limit{logits.size(), static_cast<double>(params.top_p) * d.total};
    d.keep(find_cut(logits, d.weights, limit, scratch), logits);
  }
  if (params.min_p > 0.0f) {
    const float threshold = params.min_p * find_peak(d.weights).logit;
    drop_below(d.weights, threshold, d.weights);
    d.total = sum_blocks(d.weights, d.block_mass);
  }
  return d.draw(uniform_at(params.seed, row.choice, row.position));
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

Sampled describe_token(std::span<const float> logits, TokenId token, int top) {
  Sampled described{.token = token};
  add_logprobs(logits, top, described);
  return described;
}

Sampled sample(const SamplingParams& params, const SampleRow& row, SamplerScratch& scratch) {
  assert(!row.logits.empty() && row.logits.size() <= kMaxVocab);
  if (params.logprobs) {
    scratch.raw.assign(row.logits.begin(), row.logits.end());
    find_peak(scratch.raw);  // NaN is an error even if a ban would hide it
  }
  adjust_logits(params, row, scratch);
  const Peak peak = find_peak(row.logits);
  Sampled sampled;
  if (peak.logit == -kInfinity) {
    if (!params.allowed_token_ids.empty() || !row.mask.empty() || !row.banned_runs.empty()) return sampled;
    throw invalid("no token can follow: all {} logits are -infinity", row.logits.size());
  }
  sampled.token = params.temperature == 0.0f ? peak.token : draw(params, row, peak.logit, scratch);
  if (params.logprobs) add_logprobs(scratch.raw, *params.logprobs, sampled);
  return sampled;
}

}  // namespace quire
