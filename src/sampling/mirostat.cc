#include "sampling/mirostat.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numbers>

#include "sampling/exact_math.h"
#include "sampling/softmax.h"

namespace quire {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr size_t kFitted = 100;  // as in the paper and in llama.cpp

// The logits of the best tokens that are left, best first.
std::span<const SamplerScratch::Candidate> best_tokens(const Distribution& d, SamplerScratch& scratch) {
  const Cut cut = find_cut(d.logits, d.weights, {kFitted, kUnbounded}, scratch);
  std::vector<SamplerScratch::Candidate>& best = scratch.candidates;
  best.clear();
  for (size_t i = 0; i < d.logits.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (d.weights[i] > 0 && (d.logits[i] > cut.score || (d.logits[i] == cut.score && id <= cut.id)))
      best.push_back({d.logits[i], id});
  }
  assert(best.size() <= kFitted);
  std::ranges::sort(best, std::greater(), &SamplerScratch::Candidate::score);
  return best;
}

// Least squares: the logarithm of the i-th probability falls by s * log((i + 1) / i).
double zipf_exponent(std::span<const SamplerScratch::Candidate> best, float temperature) {
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < best.size(); ++i) {
    const double rank = log2_exact(static_cast<double>(i + 2) / static_cast<double>(i + 1)) * std::numbers::ln2;
    const double fall = (static_cast<double>(best[i].score) - static_cast<double>(best[i + 1].score)) /
                        static_cast<double>(temperature);
    products += rank * fall;
    squares += rank * rank;
  }
  return products / squares;
}

// How many of `vocab` tokens that follow Zipf's law have a surprise of mu.
size_t zipf_count(double exponent, double mu, size_t vocab) {
  // k = (e 2^mu / (1 - N^-e))^(1/s), e = s - 1; as logarithms, which do not overflow.
  const double e = exponent - 1, bits = log2_exact(static_cast<double>(vocab));
  const double factor = std::fabs(e) < 1e-9 ? 1 / (bits * std::numbers::ln2) : e / (1 - exp2_exact(-e * bits));
  const double count_bits = (log2_exact(factor) + mu) / exponent;
  if (count_bits >= bits) return vocab;
  return count_bits > 0 ? static_cast<size_t>(exp2_exact(count_bits)) : 1;
}

}  // namespace

TokenId draw_by_mirostat(Distribution& d, const SamplingParams& params, double uniform, double& mu,
                         SamplerScratch& scratch) {
  if (params.mirostat == 2) {
    const double floor = exp2_exact(-mu) * d.total;
    if (floor <= 1) {  // the weight of the best token
      d.keep_from(static_cast<float>(floor), d.weights);
    } else {
      d.keep({1, kUnbounded}, d.logits, scratch);
    }
  } else if (const auto best = best_tokens(d, scratch); best.size() > 1) {
    const double exponent = zipf_exponent(best, params.temperature);
    d.keep({zipf_count(exponent, mu, d.logits.size()), kUnbounded}, d.logits, scratch);
  }
  const TokenId token = d.draw(uniform);
  const double surprise = log2_exact(d.total / static_cast<double>(d.weights[static_cast<size_t>(token)]));
  mu -= static_cast<double>(params.mirostat_eta) * (surprise - static_cast<double>(params.mirostat_tau));
  return token;
}

}  // namespace quire
