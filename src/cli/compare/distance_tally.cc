#include "cli/compare/distance_tally.h"

#include <algorithm>
#include <cmath>

#include "cli/logit_distance.h"
#include "engine/single_sequence.h"

namespace quire {
namespace {

// Sums of pairs of numbers, for means with their errors.
struct PairSums {
  double n = 0, a = 0, b = 0, aa = 0, bb = 0, ab = 0;

  void add(double x, double y) { n += 1, a += x, b += y, aa += x * x, bb += y * y, ab += x * y; }
  // Of the mean of f a + g b.
  double error(double f, double g) const {
    if (n < 2) return 0;
    const double mean = (f * a + g * b) / n, square = (f * f * aa + 2 * f * g * ab + g * g * bb) / n;
    return std::sqrt(std::max(0.0, square - mean * mean) / (n - 1));
  }
};

// The smallest value that a share of the sorted ones does not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace

void DistanceTally::add(std::span<const float> reference, std::span<const float> logits, TokenId next,
                        size_t position) {
  Row row{.position = position, .kl = kl_divergence(reference, logits)};
  const TokenId reference_top = argmax(reference), top = argmax(logits);
  row.same_top = reference_top == top;
  row.has_next = next != kNoToken;
  if (row.has_next) {
    const auto loss = [&](std::span<const float> x) { return log_sum_exp(x) - x[static_cast<size_t>(next)]; };
    row.reference_loss = loss(reference);
    row.loss = loss(logits);
    row.reference_right = reference_top == next;
    row.right = top == next;
  }
  rows_.push_back(row);
}

DistanceSummary DistanceTally::summary(size_t begin, size_t end) const {
  DistanceSummary s;
  std::vector<double> divergences;
  PairSums kl, losses;
  double same = 0, right_to_wrong = 0, wrong_to_right = 0;
  for (const Row& row : rows_) {
    if (row.position < begin || row.position >= end) continue;
    divergences.push_back(row.kl);
    kl.add(row.kl, 0);
    same += row.same_top;
    if (!row.has_next) continue;
    losses.add(row.reference_loss, row.loss);
    right_to_wrong += row.reference_right && !row.right;
    wrong_to_right += !row.reference_right && row.right;
  }
  s.tokens = divergences.size();
  if (s.tokens == 0) return s;
  std::ranges::sort(divergences);
  const auto n = static_cast<double>(s.tokens);
  s.mean_kl = {kl.a / n, kl.error(1, 0)};
  s.median_kl = quantile(divergences, 0.5);
  s.p90_kl = quantile(divergences, 0.9);
  s.p99_kl = quantile(divergences, 0.99);
  s.max_kl = divergences.back();
  s.same_top = {same / n, n > 1 ? std::sqrt(same / n * (1 - same / n) / (n - 1)) : 0};
  if (losses.n == 0) return s;
  s.right_to_wrong = right_to_wrong / losses.n;
  s.wrong_to_right = wrong_to_right / losses.n;
  // exp is differentiable, so the error of exp(mean) is exp(mean) times that of the mean.
  const double before = std::exp(losses.a / losses.n), after = std::exp(losses.b / losses.n);
  s.reference_perplexity = {before, before * losses.error(1, 0)};
  s.perplexity = {after, after * losses.error(0, 1)};
  s.perplexity_change = {after - before, losses.error(-before, after)};
  return s;
}

}  // namespace quire
