#include "speculate/rejection.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "sampling/philox.h"

namespace quire {
namespace {

double uniform_of(DrawKey key, Draw draw) { return uniform_at(key.seed, key.choice, key.position, draw); }

// The first token at which the running sum of weight(i) exceeds uniform * total. Where rounding leaves none, the last
// token that has weight.
template <class Weight>
TokenId draw_by(size_t vocab, double total, double uniform, Weight weight) {
  const double target = uniform * total;
  double sum = 0;
  TokenId token = kNoToken;
  for (size_t i = 0; i < vocab; ++i) {
    const double w = weight(i);
    if (w <= 0) continue;
    token = static_cast<TokenId>(i);
    sum += w;
    if (sum > target) break;
  }
  return token;
}

}  // namespace

TokenId draw_draft(const TokenWeights& q, DrawKey key) {
  return draw_by(q.weights.size(), q.total, uniform_of(key, Draw::kDraft),
                 [&](size_t i) { return static_cast<double>(q.weights[i]); });
}

Judged judge_draft(TokenId draft, const TokenWeights& q, const TokenWeights& p, DrawKey key) {
  const auto drafted = static_cast<size_t>(draft);
  const size_t vocab = p.weights.size();
  assert(drafted < vocab && p.total > 0 && (q.weights.empty() || q.weights.size() == vocab));
  const bool certain = q.weights.empty();
  const double q_total = certain ? 1.0 : q.total;
  const auto p_of = [&](size_t i) { return static_cast<double>(p.weights[i]); };
  const auto q_of = [&](size_t i) { return certain ? (i == drafted ? 1.0 : 0.0) : static_cast<double>(q.weights[i]); };
  assert(q_of(drafted) > 0);
  // u < (p / p_total) / (q / q_total), without dividing.
  const double u = uniform_of(key, Draw::kAccept);
  if (u * (q_of(drafted) * p.total) < p_of(drafted) * q_total) return {draft, true};
  // (p - q)+ times both totals.
  const auto residual = [&](size_t i) { return std::max(0.0, p_of(i) * q_total - q_of(i) * p.total); };
  double total = 0;
  for (size_t i = 0; i < vocab; ++i) total += residual(i);
  const TokenId token = draw_by(vocab, total, uniform_of(key, Draw::kResidual), residual);
  // Without a residual p equals q but for rounding, and so does a draw from either.
  return token == kNoToken ? Judged{draft, true} : Judged{token, false};
}

}  // namespace quire
